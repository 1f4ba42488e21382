package preflight

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const acceptedFile = `apiVersion: theseus.dev/v1alpha1
kind: AcceptedFindings
accepted:
- {id: b/two, subject: Pod/a/*, reason: ticket 1, until: 2026-11-21}
- {id: a, reason: ticket 2, until: "2026-11-22"}
- {id: c/fine, reason: ticket 3, until: 2030-01-01}
- {id: d/lacking, reason: not looked at, until: 2030-01-01}
`

func TestAccepted(t *testing.T) {
	entries, err := ParseAccepted([]byte(acceptedFile))
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 11, 21, 23, 59, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		now    time.Time
		blocks bool
		want   string
	}{
		"the last day":  {day, false, "block b/two Pod/a/p accepted: ticket 1 (until 2026-11-21)\n"},
		"the day after": {day.Add(time.Minute), true, "block b/two Pod/a/p\n"},
	} {
		t.Run(name, func(t *testing.T) {
			options := Options{Accepted: entries, Now: test.now}
			result := run(options)
			if got := lines(result); !strings.HasPrefix(got, test.want) || result.Blocks() != test.blocks {
				t.Errorf("blocks: %v\n%s", result.Blocks(), got)
			}
			expired := ""
			if test.blocks {
				expired = "accepted only until 2026-11-21: ticket 1"
			}
			if diff := cmp.Diff(expired, result.Findings[0].Expired); diff != "" {
				t.Error(diff)
			}
			unused := options.Unused(result)
			if len(unused) != 1 || unused[0].ID != "c/fine" {
				t.Errorf("unused: %v", unused)
			}
		})
	}
}

func TestParseAcceptedRefuses(t *testing.T) {
	for old, problem := range map[string][2]string{
		"kind: AcceptedFindings": {"kind: Change", `kind "Change"`},
		"reason: ticket 1":       {"reason: ' '", "accepted[0]: id and reason"},
		"until: 2026-11-21":      {"until: tomorrow", `accepted[0]: b/two: until is "tomorrow"`},
		", until: 2030-01-01}":   {"}", `accepted[2]: c/fine: until is ""`},
		"subject: Pod/a/*":       {"subject: 'Pod/['", "syntax error in pattern"},
		"id: a,":                 {"id: a, why: x,", `unknown field`},
	} {
		_, err := ParseAccepted([]byte(strings.Replace(acceptedFile, old, problem[0], 1)))
		if err == nil || !strings.Contains(err.Error(), problem[1]) {
			t.Errorf("%s: got %v, want %q", problem[0], err, problem[1])
		}
	}
}

// FuzzParseAccepted holds that what is read can be used.
func FuzzParseAccepted(f *testing.F) {
	f.Add([]byte(acceptedFile))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseAccepted(data)
		if err != nil {
			return
		}
		for _, entry := range entries {
			if validAcceptance(entry) != nil {
				t.Errorf("%+v was let through", entry)
			}
		}
		run(Options{Accepted: entries})
	})
}
