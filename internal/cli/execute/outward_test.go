package execute

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestOutward: what cannot be told is refused before a run begins, and no error has a secret.
func TestOutward(t *testing.T) {
	short := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(short, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		o    Outward
		says string
	}{
		{Outward{metrics: "9464"}, "not HOST:PORT"}, {Outward{secretFile: short}, "without --notify"},
		{Outward{notify: "hidden"}, "not valid"}, {Outward{notify: "https://a", secretFile: short}, "has 6 bytes"},
		{Outward{notify: "@" + short + ".none"}, "no such file"},
	} {
		err := test.o.Check()
		var coded *exit.Error
		if !errors.As(err, &coded) || coded.Code != exit.Usage || exit.HintOf(err) == "" ||
			!strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v", test.o, err)
		}
		if !test.o.Given() {
			t.Errorf("%+v is not given", test.o)
		}
	}
	o := Outward{}
	if err := o.Check(); err != nil || o.Given() {
		t.Errorf("nothing: %v", err)
	}
}
