package report

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestReadElsewhere: a measurement of another machine is read, and what no prober writes is refused.
func TestReadElsewhere(t *testing.T) {
	document := func(name, result string) string {
		return `{"kind":"ProbeReport","metadata":{"name":"` + name + `"},"spec":{"paths":[{"id":"x","denied":true}]},` +
			`"status":{"paths":[{"id":"x",` + result + `}]}}`
	}
	for name, text := range map[string]string{
		"gate": document("gate", `"sent":2,"answered":1`), "another machine": document(" ", `"sent":0`),
		"a b": document("a\\u001b[2Jb", `"sent":1`)} {
		text = strings.ReplaceAll(text, `\\`, `\`)
		all, err := ReadElsewhere(strings.NewReader(text), []string{"-"})
		if err != nil || len(all) != 1 || len(all[0].Results) != 1 || !all[0].Paths[0].Denied ||
			name != "a b" && all[0].Name != name || strings.Contains(all[0].Name, "\x1b") {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	for name, text := range map[string]string{"empty": "", "no measurement": `{"kind":"Pod"}`, "no JSON": "{",
		"a list": `[]`, "fewer than none": document("g", `"sent":-1`),
		"more answers":     document("g", `"sent":1,"answered":2`),
		"a gap of years":   document("g", `"sent":1,"gaps":[{"probes":1,"millis":1e30}]`),
		"a gap of nothing": document("g", `"sent":1,"open":{"probes":-1,"millis":1}`),
		"a negative gap":   document("g", `"sent":1,"gaps":[{"probes":1,"millis":-1}]`)} {
		if _, err := ReadElsewhere(strings.NewReader(text), []string{"-"}); err == nil {
			t.Errorf("%s was read", name)
		} else if exit.HintOf(err) == "" {
			t.Errorf("%s: %v has no hint", name, err)
		}
	}
	if all, err := ReadElsewhere(nil, nil); err != nil || len(all) > 0 {
		t.Errorf("without a file: %v, %v", all, err)
	}
}

// FuzzReadElsewhere: whatever a file of another machine has, it is refused, or has a name that can be shown and counts
// that can be added.
func FuzzReadElsewhere(f *testing.F) {
	f.Add([]byte(`{"kind":"ProbeReport","metadata":{"name":"gate"},"spec":{"paths":[{"id":"x","denied":true}]},` +
		`"status":{"paths":[{"id":"x","sent":3,"answered":1,"gaps":[{"probes":1,"millis":2}],"open":{"probes":1,"millis":1}}]}}`))
	f.Add([]byte(`{"kind":"List","items":[{"metadata":{"name":"` + strings.Repeat("\u00e9", 200) + `"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := ReadElsewhere(strings.NewReader(string(data)), []string{"-"})
		if err != nil && len(all) > 0 {
			t.Errorf("%v, and %d measurements", err, len(all))
		}
		for _, one := range all {
			if one.Name == "" || len(one.Name) > maxName || !utf8.ValidString(one.Name) {
				t.Errorf("the name %q", one.Name)
			}
			for _, result := range one.Results {
				lost := int64(0)
				for _, gap := range result.Gaps {
					lost += gap.Probes
				}
				if lost < 0 || lost > result.Sent || result.Sent > maxSent {
					t.Errorf("%+v", result)
				}
			}
		}
	})
}
