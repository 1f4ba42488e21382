package step

import (
	"testing"
	"time"
)

func TestAbout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1 s", 4300 * time.Millisecond: "4 s", 59 * time.Second: "59 s",
		93 * time.Second: "1 min 30 s", 4 * time.Minute: "4 min", 25*time.Minute + 29*time.Second: "25 min",
		100*time.Minute + 4*time.Second: "1 h 40 min", 2 * time.Hour: "2 h",
		8*time.Hour + 52*time.Minute + 14*time.Second: "9 h",
	} {
		if got := Duration(d).About(); got != want {
			t.Errorf("%v is %q, not %q", d, got, want)
		}
	}
}
