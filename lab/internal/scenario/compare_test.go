package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs writes shell scripts in place of theseus-lab and theseus: the former records what it is asked, has a
// kubeconfig, and refuses to start the lab $TAKEN, the latter does as told by the name of its folder.
func programs(t *testing.T, theseus string) (c Compare, asked func() string, out *bytes.Buffer) {
	t.Helper()
	dir, out := t.TempDir(), &bytes.Buffer{}
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log := filepath.Join(dir, "asked")
	lab := script("lab", fmt.Sprintf(`echo "$@ in $THESEUS_LAB_DIR" >>%[1]s
case "$1 $3" in
kubeconfig*) echo %[1]s;;
"up $TAKEN") exit 1;;
esac`, log))
	c = Compare{Networks: []string{"flannel", "calico", "weave"}, Rounds: 2, Duration: time.Second, Rate: 100,
		Megabits: 10,
		Rig: Rig{Name: "t", Nodes: 2, Lab: lab, State: "/labs", Theseus: script("theseus", draws+theseus), Dir: dir,
			Out: out}}
	return c, func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}, out
}

// draws is what theseus does when it is asked for drawings.
const draws = `case "$*" in "bench draw "*) echo '<style></style><section id="drawings"></section>'; exit;; esac
`

const rowOf = `{"rows": [{"path": "p", "name": "datagrams", "unit": "/s", "runs": 1, "sent": 2000, "value": {"median": 2000}}]}`

// partOf is a result with a row that was not measured, with which theseus ends with exit code 0.
const partOf = `{"rows": [{"path": "p", "name": "datagrams", "unit": "/s", "runs": 0, "error": "no answer"}]}`

// TestCompareRuns: all clusters are started, measured in turn and removed; one whose benchmark fails, or is incomplete,
// does not stop the others, and is the error.
func TestCompareRuns(t *testing.T) {
	c, asked, out := programs(t, `case "$THESEUS_STATE_DIR:$*" in
*--dry-run) echo the cost;;
*/calico/*) echo "error: no room" >&2; echo "hint: none" >&2; exit 1;;
*/weave/*) echo '`+partOf+`';;
*) echo '`+rowOf+`';;
esac`)
	err := c.Run(t.Context())
	var failed *FailedError
	if !errors.As(err, &failed) || err.Error() != "failed: calico in round 1, weave in round 1, "+
		"calico in round 2, weave in round 2" {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"up --name ta --nodes 2 --network flannel", "up --name tb --nodes 2 --network calico",
		"up --name tc --nodes 2 --network weave", "down --name ta in /labs", "down --name tb", "down --name tc"} {
		if !strings.Contains(asked(), want) {
			t.Errorf("%q is not in:\n%s", want, asked())
		}
	}
	for _, want := range []string{"calico failed in round 2: no room",
		"weave, round 2, p, datagrams: not measured: no answer", "datagrams, /s", "2000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	_, second, _ := strings.Cut(out.String(), "round 2 of 2")
	calico, flannel := strings.Index(second, "calico: "), strings.Index(second, "flannel: ")
	if calico < 0 || flannel < calico {
		t.Errorf("round 2 is not in turn:\n%s", second)
	}
	for _, file := range []string{"compare.json", "compare.html"} {
		text, err := os.ReadFile(filepath.Join(c.Rig.Dir, file))
		if err != nil || !strings.Contains(string(text), "no room") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestCompareStops: bounds that theseus refuses are an error before there is a second cluster, and an interrupt ends
// the rounds, and says where results are, if there are any. The clusters are removed each time.
func TestCompareStops(t *testing.T) {
	c, asked, _ := programs(t, "exit 2")
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("%v", err)
	}
	if got := asked(); strings.Contains(got, "--name tb") || !strings.Contains(got, "down --name ta") {
		t.Errorf("%s", got)
	}
	for _, at := range []string{"flannel", "calico"} { // the first and the second one that is measured
		c, asked, out := programs(t, `case "$THESEUS_STATE_DIR:$*" in
*--dry-run) ;;
*/`+at+`/*) kill -INT $PPID; exec sleep 20;;
*) echo '`+rowOf+`';;
esac`)
		ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
		start := time.Now()
		err := c.Run(ctx)
		stop()
		if err == nil || !strings.Contains(err.Error(), "round 1, "+at+": context canceled") {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("it took %s", took)
		}
		for _, want := range []string{"down --name ta", "down --name tb", "down --name tc"} {
			if !strings.Contains(asked(), want) {
				t.Errorf("%q is not in:\n%s", want, asked())
			}
		}
		_, absent := os.Stat(filepath.Join(c.Rig.Dir, "compare.json"))
		if says := strings.Contains(out.String(), "results so far are in"); says != (absent == nil) ||
			says != (at == "calico") {
			t.Errorf("interrupted at %s: compare.json: %v; said:\n%s", at, absent, out)
		}
	}
}

// TestCompareKeepsOthers: a lab that up refused to start is another's, and is not removed.
func TestCompareKeepsOthers(t *testing.T) {
	t.Setenv("TAKEN", "tb")
	c, asked, _ := programs(t, "true")
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the cluster of calico: ") {
		t.Errorf("%v", err)
	}
	got := asked()
	if strings.Contains(got, "down --name tb") || strings.Contains(got, "--name tc") ||
		!strings.Contains(got, "down --name ta") {
		t.Errorf("%s", got)
	}
}

// TestReason: the error of theseus, whatever it wrote before, or how it ended.
func TestReason(t *testing.T) {
	for written, want := range map[string]string{
		"error: no room\nhint: none": "no room",
		"waiting for the API server: rpc error: code = Unavailable\nerror: no room\nhint: none": "no room",
		"panic: no room": "theseus bench network: exit status 3",
		"":               "theseus bench network: exit status 3",
	} {
		t.Setenv("WRITTEN", written)
		rig := &Rig{Dir: t.TempDir()}
		_, err := rig.run(t.Context(), nil, nil, "sh", "-c", `echo "$WRITTEN" >&2; exit 3`)
		if err == nil || reason(err) != want {
			t.Errorf("%q: %v: want %q", written, err, want)
		}
	}
	if got := reason(errors.New("not started")); got != "not started" {
		t.Errorf("%s", got)
	}
}

// TestDownOfAnother: a story that cannot start its lab, since one of its name is running, leaves that one alone.
func TestDownOfAnother(t *testing.T) {
	c, asked, _ := programs(t, "")
	t.Setenv("TAKEN", c.Rig.Name)
	if err := c.Rig.Up(t.Context(), "flannel"); err == nil {
		t.Fatal("a second lab of that name was started")
	}
	if err := c.Rig.Down(); err != nil || strings.Contains(asked(), "down") {
		t.Errorf("%v, asked:\n%s", err, asked())
	}
}
