package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// TestDryNeedsNoImage: a dry run makes nothing, so it needs no image and no consent.
func TestDryNeedsNoImage(t *testing.T) {
	t.Setenv("THESEUS_AGENT_IMAGE", "")
	o := &options{bounds: bench.Defaults(), dry: true}
	if _, err := o.read(&app.App{}); err != nil {
		t.Error(err)
	}
	o.bounds.CPUShare = 0 // as results of older versions have it
	if _, err := o.read(&app.App{}); err == nil || !strings.Contains(err.Error(),
		"--max-cpu-share 0 is not between 1") {
		t.Error(err)
	}
}

// TestResults: the files of one name are one network; what cannot be drawn is refused, and says which file it is.
func TestResults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const task = `"tasks":[{"kind":"TCP","path":"p","streams":1,"rate":10}]`
	one := write("one.json", `{"bounds":{"ratePerSecond":40},`+task+`,"samples":[{"task":0,"run":1,"value":3}]}`)
	other := write("other.json", `{"bounds":{"ratePerSecond":50},`+task+`}`)
	odd := write("odd.json", `{"bounds":{"ratePerSecond":40},`+task+`,"samples":[{"task":1,"run":1}]}`)
	snapshot, none := write("snapshot.json", `{"kind":"Snapshot"}`), write("none.json", "")
	networks, err := results([]string{"a=" + one, "b=" + one, "a=" + one})
	if err != nil || len(networks) != 2 || networks[0].Name != "a" || networks[0].Runs() != "2 runs" ||
		networks[1].Runs() != "1 run" {
		t.Errorf("%+v, %v", networks, err)
	}
	for says, args := range map[string][]string{
		"no file was given: name at":                       nil,
		`"a" is not NAME=FILE`:                             {"a"},
		`"=x" is not NAME=FILE`:                            {"=x"},
		`"a=" is not NAME=FILE`:                            {"a="},
		"absent.json: no such file":                        {"a=" + filepath.Join(dir, "absent.json")},
		"other.json: the load differs from":                {"a=" + one, "b=" + other},
		"odd.json: result of a benchmark: there is no":     {"a=" + odd},
		"snapshot.json: not a result of theseus bench":     {"a=" + snapshot},
		"none.json: result of a benchmark: unexpected end": {"a=" + none},
	} {
		if _, err := results(args); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
