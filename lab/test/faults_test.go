package test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestFaults harms the nodes of one lab in every way that there is, and undoes it.
func TestFaults(t *testing.T) {
	l := newLab(t)
	l.do("up", "--name", "t4", "--nodes", "2", "--network", "bridge")
	on := func(node string, script string) (string, error) {
		return l.try("--name", "t4", "node", "exec", node, "--", "sh", "-c", script)
	}
	// reach opens a connection from node 1 to the kubelet of node 2.
	reach := func() bool {
		_, err := l.try("--name", "t4", "node", "exec", "1", "--", "timeout", "1", "bash", "-c",
			"echo > /dev/tcp/198.18.0.12/10250")
		return err == nil
	}
	rigtest.Until(t, "node 1 reaches node 2 to begin with", reach)

	// Each subtest speaks for itself: a command that fails ends it and not the whole test.
	sub := func(t *testing.T) func(...string) string {
		own := *l
		own.t = t
		return func(args ...string) string { t.Helper(); return own.do(append([]string{"--name", "t4"}, args...)...) }
	}
	t.Run("partition", func(t *testing.T) {
		at := sub(t)
		at("node", "partition", "2")
		if reach() {
			t.Error("a partitioned node answers")
		}
		at("node", "heal", "2")
		rigtest.Until(t, "a healed node answers", reach)
	})
	t.Run("drop", func(t *testing.T) {
		at := sub(t)
		at("link", "2", "--drop", "tcp:10250")
		if reach() {
			t.Error("the dropped port answers")
		}
		if out := at("status"); !strings.Contains(out, "drops tcp:10250") {
			t.Errorf("status does not show the fault:\n%s", out)
		}
		at("link", "2", "--clear")
		rigtest.Until(t, "the port answers after --clear", reach)
	})
	t.Run("loss", func(t *testing.T) {
		at := sub(t)
		at("link", "2", "--loss", "100%")
		if reach() {
			t.Error("a link that loses everything answers")
		}
		at("link", "2", "--clear")
	})
	t.Run("full disk", func(t *testing.T) {
		at := sub(t)
		at("node", "fill-disk", "1")
		if out, err := on("1", "dd if=/dev/zero of=/var/lib/kubelet/proof bs=4096 count=1"); err == nil ||
			!strings.Contains(out, "No space left") {
			t.Errorf("the disk took more: %v\n%s", err, out)
		}
		at("node", "fill-disk", "1", "--free")
		if out, err := on("1", "echo x > /var/lib/kubelet/proof"); err != nil {
			t.Errorf("the disk is still full: %v\n%s", err, out)
		}
	})
	for _, component := range []string{"containerd", "kubelet"} {
		t.Run("kill "+component, func(t *testing.T) {
			at := sub(t)
			pid := at("node", "exec", "1", "--", "cat", "/run/theseus-lab/"+component+".pid")
			at("node", "kill", "1", "--component", component)
			rigtest.Until(t, component+" runs again", func() bool {
				now, err := on("1", "p=$(cat /run/theseus-lab/"+component+".pid); kill -0 $p && echo $p")
				return err == nil && now != pid
			})
		})
	}
	t.Run("power cut", func(t *testing.T) {
		at := sub(t)
		if out, err := on("2", "echo kept > /var/lib/kubelet/proof; sync"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		at("node", "kill", "2")
		if out, err := on("2", "true"); err == nil || !strings.Contains(out, "hint: theseus-lab node start t4-node-2") {
			t.Errorf("a node without power runs things: %v\n%s", err, out)
		}
		at("node", "start", "2")
		rigtest.Until(t, "the node has its kubelet again", reach)
		if out := at("node", "exec", "2", "--", "cat", "/var/lib/kubelet/proof"); out != "kept\n" {
			t.Errorf("the disk lost what was on it: %q", out)
		}
	})
	t.Run("exit code", func(t *testing.T) {
		_, err := on("1", "exit 7")
		if ended, ok := err.(*exec.ExitError); !ok || ended.ExitCode() != 7 {
			t.Errorf("got %v, want exit code 7", err)
		}
	})
}
