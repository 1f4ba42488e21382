// Package phrase adapts third parties' text by replacing whole phrases of it. So comments survive, what
// is used is what upstream wrote, and a phrase that is gone in another version is an error rather than
// text that silently lacks something.
package phrase

import (
	"fmt"
	"strings"
)

// Edit replaces the only occurrence of a phrase.
type Edit struct{ From, To string }

// Apply makes every edit; a phrase that is missing or ambiguous is an error.
func Apply(text string, edits []Edit) (string, error) {
	for _, e := range edits {
		if n := strings.Count(text, e.From); n != 1 {
			return "", fmt.Errorf("expected %q once, found it %d times", e.From, n)
		}
		text = strings.Replace(text, e.From, e.To, 1)
	}
	return text, nil
}
