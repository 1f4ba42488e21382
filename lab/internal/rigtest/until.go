package rigtest

import (
	"testing"
	"time"
)

// longest is how long Until waits: it only ends a test that has failed.
const longest = 2 * time.Minute

// Until waits for a condition, and ends the test if it never holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(longest); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s it still does not hold that %s", longest, what)
		}
	}
}
