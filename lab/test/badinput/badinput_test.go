// Package badinput gives Theseus what it must refuse, and stops it in every way, on a real cluster.
package badinput

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

const bin = "../../../bin"

// stage is the one cluster of this file, with a good plan for it.
type stage struct {
	*scenario.Rig
	change []string // flags
	plan   string
}

// TestBadInput goes through one cluster's story: what is refused before anything is changed, a migration that
// is stopped and taken over, and a node that loses its power in the middle.
func TestBadInput(t *testing.T) {
	rig := rigtest.New(t, bin, "bad", 2, "flannel", "--max-lost", "50", "--bake", "1s")
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{rig, change, plan}
	t.Run("refused", func(t *testing.T) {
		t.Run("no migration", s.noMigration)
		t.Run("another cluster and an unknown network", s.elsewhere)
		t.Run("missing rights", s.rights)
		t.Run("duties", s.duties)
		t.Run("no image", s.noImage)
		t.Run("no such check", s.noCheck)
		t.Run("a cluster that changed", s.changed)
		t.Run("a full disk", s.fullDisk)
		s.untouched(t)
	})
	for _, act := range []struct {
		name string
		play func(*testing.T)
	}{
		{"an image that nobody has, stopped at once", s.stoppedAtOnce},
		{"left by somebody", s.halfMigrated},
		{"interrupted", s.interrupted},
		{"two operators", s.twoOperators},
		{"a lock that ran out", s.stolen},
		{"a node without power", s.powerCut},
	} {
		if !t.Run(act.name, act.play) {
			return // what follows builds on it
		}
	}
}

// kubectl must succeed, and returns what it printed.
func (s *stage) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// run demands an exit code, and texts in what is printed.
func (s *stage) run(t *testing.T, code int, texts []string, args ...string) {
	t.Helper()
	rigtest.Run(t, s.Rig, "here", code, texts, args...)
}

func (s *stage) planned(flags ...string) []string {
	return append(append([]string{"plan"}, s.change...), flags...)
}

// untouched demands that nothing of Theseus is in the cluster.
func (s *stage) untouched(t *testing.T) {
	t.Helper()
	if got := s.kubectl(t, "", "get", "crd,namespace", "-o", "name"); strings.Contains(got, "theseus") {
		t.Errorf("something was changed:\n%s", got)
	}
}

func (s *stage) noMigration(t *testing.T) {
	for _, command := range []string{"status", "pause", "resume", "rollback", "report"} {
		s.run(t, 1, []string{"error: this cluster has no migration"}, command)
		s.run(t, 1, []string{"error: there is no migration no-such"}, command, "no-such")
	}
}

func (s *stage) elsewhere(t *testing.T) {
	other := rigtest.New(t, bin, "bad2", 1, "bridge")
	unknown := []string{"error: Theseus cannot change the network of this cluster", "theseus snapshot " +
		"--nodes"}
	rigtest.Run(t, other, "here", 1, unknown, s.planned()...)
	rigtest.Run(t, other, "here", 1, []string{"error: the plan was made for another cluster", "--context"},
		"apply", s.plan, "--yes")
	(&stage{Rig: other}).untouched(t)
}

func (s *stage) noImage(t *testing.T) {
	s.run(t, 3, []string{"block agent/image", "--agent-image IMAGE"}, s.planned("--agent-image", "")...)
}

func (s *stage) noCheck(t *testing.T) {
	s.run(t, 2, []string{`error: there is no check "no/such"`}, s.planned("--accept", "no/such=because")...)
}

func (s *stage) changed(t *testing.T) {
	s.kubectl(t,
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: late}, spec: {podSelector: {}}}`,
		"apply", "-f", "-")
	s.run(t, 1, []string{"error: the cluster has changed since the plan was made: NetworkPolicies were added",
		"make a new plan"},
		"apply", s.plan, "--yes")
	s.kubectl(t, "", "delete", "networkpolicy", "late")
}

func (s *stage) fullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0) //nolint:errcheck // it holds nothing
	rigtest.Run(t, s.Rig, dir, 1, []string{"error: no disk space for the local journal",
		"no space left", "THESEUS_STATE_DIR"}, "apply", s.plan, "--yes")
}

// stoppedAtOnce: two signals in the middle of a wait. What was begun is then in the way, and is taken back.
func (s *stage) stoppedAtOnce(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	s.run(t, 0, nil, s.planned("--agent-image", "127.0.0.1:1/agent:none", "-o", plan)...)
	p := rigtest.Start(t, s.Rig, "here", "apply", plan, "--yes")
	p.Until("cannot get the image 127.0.0.1:1/agent:none")
	p.Signal(syscall.SIGINT, syscall.SIGTERM)
	p.Ends(130, "error: stopped at once: during [1/", "Install Theseus' agent on every node: wait until",
		"hint: `theseus resume`")
	s.run(t, 0, []string{", interrupted",
		"no process runs it: `theseus resume` continues, `theseus rollback` undoes every step"}, "status")
	s.run(t, 1, []string{"in the middle of a migration", "DaemonSet theseus-system/theseus-agent exists",
		"theseus rollback"}, s.planned()...)
	s.run(t, 1, []string{"another migration has not ended, and no process runs it", "theseus rollback"},
		"apply", s.plan, "--yes")
	s.run(t, 5, []string{"error: stopped"}, "rollback")
	s.run(t, 1, []string{"has ended: rolled-back"}, "pause")
}

// halfMigrated: traces that no journal tells of.
func (s *stage) halfMigrated(t *testing.T) {
	node := s.NodeNames()[0]
	s.kubectl(t, "", "label", "node", node, "theseus.dev/target=true")
	remedy := "kubectl label node " + node + " theseus.dev/target-"
	s.run(t, 1, []string{"in the middle of a migration: node " + node + " has the label", remedy}, s.planned()...)
	s.run(t, 1, []string{"a migration began: node " + node + " has the label"}, "apply", s.plan, "--yes")
	s.kubectl(t, "", strings.Fields(remedy)[1:]...)
}

// interrupted: one signal ends a run after the action at hand, with all of it in the journal.
func (s *stage) interrupted(t *testing.T) {
	p := rigtest.Start(t, s.Rig, "here", "apply", s.plan, "--yes")
	p.Until("create DaemonSet theseus-system/theseus-agent")
	p.Signal(syscall.SIGINT)
	p.Ends(130, "; Theseus stops after the current action; interrupt again to stop at once",
		"error: interrupted: stopped as requested; the journal has everything that was done",
		"hint: `theseus resume` continues")
	s.run(t, 0, []string{"no process runs it"}, "status")
	s.run(t, 1, []string{"has already begun, and no process runs it", "theseus resume"}, "apply", s.plan, "--yes")
	s.run(t, 0, []string{"no process runs", "there is nothing to pause"}, "pause")
}

// twoOperators: the second is told who is at work, and can ask that one to pause.
func (s *stage) twoOperators(t *testing.T) {
	first := rigtest.Start(t, s.Rig, "first", "resume")
	first.Until("resumed by")
	rigtest.Run(t, s.Rig, "second", 1, []string{"is running a migration on this cluster, since 20", "wait for it"},
		"resume")
	rigtest.Run(t, s.Rig, "second", 1, []string{"is running: ", "is running a migration on this cluster, since 20"},
		"apply", s.plan, "--yes")
	rigtest.Run(t, s.Rig, "second", 0, []string{", to pause"}, "pause")
	first.Ends(5, "error: paused", "hint: `theseus resume` continues")
}

// stolen: a holder that stands still loses the lock when it has run out, and not before; awake again, it acts no more.
func (s *stage) stolen(t *testing.T) {
	first := rigtest.Start(t, s.Rig, "first", "resume")
	first.Until("resumed by")
	first.Signal(syscall.SIGSTOP)
	begun := time.Now()
	second := rigtest.Start(t, s.Rig, "second", "resume")
	second.Until("resumed by")
	if took := time.Since(begun); took < 15*time.Second {
		t.Errorf("the lock was taken after %s", took)
	}
	second.Signal(syscall.SIGTERM)
	first.Signal(syscall.SIGCONT)
	first.Ends(130, "the lock was lost: ", "is running a migration on this cluster, since 20")
	second.Ends(130, "hint: `theseus resume` continues")
}

// powerCut: a node dies in the middle. What can be taken back is, and a person is told what is missing.
func (s *stage) powerCut(t *testing.T) {
	p := rigtest.Start(t, s.Rig, "here", "resume")
	p.Until("measuring: both networks are up on every node")
	s.lab(t, "kill")
	p.Ends(6, "is down (not Ready): bring it back", "hint: `theseus resume` continues the rollback")
	s.run(t, 3, []string{"block node/not-ready", "the node is down"}, s.planned()...)
	s.lab(t, "start")
	s.kubectl(t, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	s.run(t, 4, []string{"error: rolled-back"}, "resume")
	if left := s.kubectl(t, "", "get", "daemonset", "-A", "-o", "name"); strings.Contains(left, "theseus") ||
		strings.Contains(left, "calico") {
		t.Errorf("left:\n%s", left)
	}
	s.run(t, 0, nil, append([]string{"check"}, s.change...)...)
}

// lab cuts the power of node 2, or gives it back.
func (s *stage) lab(t *testing.T, verb string) {
	t.Helper()
	if out, err := s.command(t, "node", verb, "--name", s.Name, s.NodeNames()[1]).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// command prepares theseus-lab.
func (s *stage) command(t *testing.T, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), s.Lab, args...)
}
