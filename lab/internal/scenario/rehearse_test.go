package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
)

// needed answers theseus rehearse needs: one class of three workers, and one node of a control plane. What theseus
// rehearse itself does follows.
const needed = `echo "theseus $@" >>"$(dirname "$0")/asked"
case "$*" in
"rehearse needs"*) echo '{"network": "flannel", "workers": 1, "controlPlane": 1, "classes":
	[{"controlPlane": true, "nodes": ["a"]}, {"nodes": ["b", "c", "d"]}]}'; exit;;
report*) exit;;
esac
`

// rehearsal is a rehearsal whose programs are scripts (programs).
func rehearsal(t *testing.T, theseus string) (h Rehearse, asked func() string, said *bytes.Buffer) {
	t.Helper()
	c, asked, out := programs(t, needed+theseus)
	return Rehearse{Rig: c.Rig, From: []string{"a.json", "b.yaml"}, Ignore: []string{"disk"},
		Args: []string{"--to", "calico", "--bake=2s"}, To: out, Err: out}, asked, out
}

// TestRehearseRuns: the cluster has the network of the original and the nodes that the copy needs; theseus gets the
// lab's manifest and image, and the report is made before the cluster is removed.
func TestRehearseRuns(t *testing.T) {
	h, asked, out := rehearsal(t, `while [ "$1" != -o ]; do shift; done; echo '{"migration": "m"}' >"$2"`)
	h.Rig.Nodes = 0
	if err := h.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := h.Rig.Dir
	at := 0
	for _, want := range []string{
		"theseus rehearse needs -o json --from a.json,b.yaml --ignore disk\n",
		"up --name t --nodes 3 --network flannel --calico  --policy kube-router in /labs\n",
		"kubectl --name t label node t-node-3 node-role.kubernetes.io/control-plane= in /labs\n",
		"manifest calico --name t in /labs\n",
		"theseus rehearse --from a.json,b.yaml --ignore disk --context theseus-lab-t --yes --agent-image " +
			AgentImage + " --manifest " + dir + "/calico.yaml -o " + dir + "/rehearsal.json --to calico --bake=2s\n",
		"theseus report m --context theseus-lab-t -o " + dir + "/report.html\n",
		"down --name t in /labs\n",
	} {
		i := strings.Index(asked()[at:], want)
		if i < 0 {
			t.Fatalf("%q is not in turn in:\n%s", want, asked())
		}
		at += i
	}
	for _, want := range []string{"the result is in " + dir + "/rehearsal.json",
		"the report is in " + dir + "/report.html"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// TestRehearseKeeps: the user's own image, manifest and file stay, and so does a cluster that is kept; how it is
// removed is said.
func TestRehearseKeeps(t *testing.T) {
	h, asked, out := rehearsal(t, "true")
	h.Keep, h.Args = true, []string{"--to=calico", "--manifest", "m.yaml", "--agent-image=i", "-o", "mine.json"}
	h.Rig.Nodes, h.Rig.Network = 4, "weave"
	if err := h.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := asked()
	for _, want := range []string{"up --name t --nodes 4 --network weave", "--yes --to=calico --manifest m.yaml " +
		"--agent-image=i -o mine.json\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	for _, not := range []string{"down", "manifest calico", "theseus report"} {
		if strings.Contains(got, not) {
			t.Errorf("%q is in:\n%s", not, got)
		}
	}
	if !strings.Contains(out.String(), "`theseus-lab down --name t` removes it") {
		t.Errorf("%s", out)
	}
}

// TestRehearseFaults: the faults that only a lab can make get commands, which a shell can run; those of the user stay.
func TestRehearseFaults(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"none":          {nil, nil},
		"the product's": {[]string{"--faults", "agent,image"}, nil},
		"both":          {[]string{"--faults=agent,power@3,api@random"}, []string{"api=sh -c '", "power=sh -c '"}},
		"a lossy link":  {[]string{"--faults", "loss"}, []string{"loss=sh -c '"}},
		"a like name":   {[]string{"--faults", "apis"}, nil},
		"the user's":    {[]string{"--faults", "api,power", "--fault-command", "api=mine"}, []string{"power=sh -c '"}},
		"joined": {[]string{"--faults", "api,power", "--fault-command=api=mine", "--fault-command=power=mine"},
			nil},
	} {
		h := Rehearse{Rig: Rig{Name: "reh", Lab: "/bin/theseus-lab"}, Args: test.args}
		got := h.faults()
		if len(got) != 2*len(test.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for i, want := range test.want {
			script := strings.TrimSuffix(strings.TrimPrefix(got[2*i+1], want), "'")
			if got[2*i] != "--fault-command" || !strings.HasPrefix(got[2*i+1], want) || strings.Contains(script, "'") {
				t.Errorf("%s: %q", name, got)
			}
			if out, err := exec.Command("sh", "-n", "-c", script).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s: %s", name, err, script, out)
			}
			if !strings.Contains(script, "kube-[a]piserver.*labs/reh/") &&
				!strings.Contains(script, `node start --name reh "$THESEUS_FAULT_NODE"`) &&
				!strings.Contains(script, `link --clear --name reh "$THESEUS_FAULT_NODE"`) {
				t.Errorf("%s: %s", name, script)
			}
		}
	}
}

// TestRehearseEnds: the exit code of theseus is that of the error, also after an interrupt, and the cluster is removed.
// What no lab can be, and a lab of another's, is refused before.
func TestRehearseEnds(t *testing.T) {
	for name, test := range map[string]struct {
		theseus string
		change  func(*Rehearse)
		code    int
		says    string
		up      bool
	}{
		"failed":      {"echo 'error: no' >&2; exit 3", nil, 3, "error: no", true},
		"interrupted": {`trap 'exit 130' INT; kill -INT $PPID; while :; do sleep 0.1; done`, nil, 130, "", true},
		"too few": {"", func(h *Rehearse) { h.Rig.Nodes = 1 }, 0,
			"--nodes 1: the copy needs 2 or more", false},
		"unknown": {"", func(h *Rehearse) { h.Rig.Network = "ovn" }, 0, "the network ovn, which no lab has", false},
		"taken":   {"", func(h *Rehearse) { h.Rig.Name = "other" }, 0, "lab up --name other", false},
	} {
		t.Run(name, func(t *testing.T) {
			h, asked, out := rehearsal(t, test.theseus)
			if test.change != nil {
				test.change(&h)
			}
			for _, old := range []string{"rehearsal.json", "report.html"} { // of an earlier run
				file := filepath.Join(h.Rig.Dir, old)
				if err := os.WriteFile(file, []byte(`{"migration": "old"}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if name == "taken" {
				t.Setenv("TAKEN", "other")
			}
			ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
			err := h.Run(ctx)
			stop()
			if exit, own := err.(*exec.ExitError); test.code > 0 && (!own || exit.ExitCode() != test.code) {
				t.Errorf("%v", err)
			}
			var need *NeedError
			if said := fmt.Sprint(err) + out.String(); err == nil || !strings.Contains(said, test.says) ||
				errors.As(err, &need) && need.Hint == "" {
				t.Errorf("%v: %s", err, out)
			}
			if removed := strings.Contains(asked(), "down --name t in"); removed != test.up {
				t.Errorf("removed: %v:\n%s", removed, asked())
			}
			for _, old := range []string{"rehearsal.json", "report.html"} {
				_, err := os.Stat(filepath.Join(h.Rig.Dir, old))
				if err == nil || strings.Contains(asked(), "report old") {
					t.Errorf("%s of an earlier run is there:\n%s", old, asked())
				}
			}
		})
	}
}

// TestRehearseInterruptedOnce: an interrupt of the whole process group, as a terminal sends it, reaches theseus once.
func TestRehearseInterruptedOnce(t *testing.T) {
	group := "ps -o pgid= -p "
	h, _, out := rehearsal(t, `echo "own $(`+group+`$$) of $(`+group+`$PPID)"`)
	if err := h.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if line, found := strings.CutPrefix(line, "own "); found {
			own, parent, _ := strings.Cut(line, " of ")
			if strings.TrimSpace(own) == strings.TrimSpace(parent) || strings.TrimSpace(own) == "" {
				t.Errorf("theseus is in the process group of theseus-lab: %s", line)
			}
			return
		}
	}
	t.Errorf("theseus did not run:\n%s", out)
}
