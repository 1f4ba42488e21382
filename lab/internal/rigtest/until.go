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
	Within(t, longest, what, holds)
}

// Within is Until with a limit of the caller's, for what takes minutes when all is well.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s it still does not hold that %s", limit, what)
		}
	}
}
