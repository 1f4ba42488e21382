package test

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// TestCilium runs Cilium by its own chart: with both of its ways to hand out addresses, and in place of kube-proxy.
// Pods reach one another, policy holds, Theseus finds it, and nothing of it outlives the lab: no process or cgroup, no
// program and no map in the kernel, and no setting of the machine.
func TestCilium(t *testing.T) {
	rigtest.Full(t, "Cilium, whose build takes fifteen minutes of CPU time")
	for name, flags := range map[string][]string{
		"cluster-pool": nil,
		"kubernetes":   {"--set", "ipam.mode=kubernetes"},
		"no-proxy":     {"--kube-proxy", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			before, loaded := lookAround(t), rigtest.InKernel(t)
			c := up(t, "t8", append([]string{"--network", "cilium"}, flags...)...)
			t.Cleanup(c.tellCilium)
			if len(rigtest.NewInKernel(t, loaded)) == 0 {
				t.Error("a running lab shows no new program or map: the comparison is blind")
			}
			c.deploy()
			c.reaches()
			c.enforces()
			c.understands("cilium")
			if name == "no-proxy" {
				c.servesWithoutProxy()
			}
			c.do("down", "--name", c.name)
			compare(t, before, lookAround(t))
			rigtest.Until(t, "the kernel has freed the programs and maps", func() bool { // it does so a moment later
				return len(rigtest.NewInKernel(t, loaded)) == 0
			})
		})
	}
}

// servesWithoutProxy holds that no rule of kube-proxy's had a part in what worked.
func (c cluster) servesWithoutProxy() {
	c.t.Helper()
	for _, node := range []string{"1", "2"} {
		if rules := c.do("node", "exec", "--name", c.name, node, "--", "sh", "-c",
			"iptables-save 2>/dev/null | grep -E 'KUBE-(SVC|SEP)'; pgrep -x kube-proxy; true"); rules != "" {
			c.t.Errorf("kube-proxy left on node %s:\n%s", node, rules)
		}
	}
}

// tellCilium says after a failure what Cilium knew.
func (c cluster) tellCilium() {
	if !c.t.Failed() {
		return
	}
	for _, args := range [][]string{
		{"kubectl", "get", "pods", "-A", "-o", "wide"},
		{"kubectl", "-n", "kube-system", "logs", "-l", "k8s-app=cilium", "-c", "cilium-agent",
			"--prefix", "--tail", "30"},
		{"kubectl", "-n", "kube-system", "logs", "-l", "name=cilium-operator", "--prefix", "--tail", "20"},
	} {
		out, err := c.try(append([]string{"--name", c.name}, args...)...)
		c.t.Logf("%s (%v)", strings.Join(args, " "), err)
		for line := range strings.Lines(out) {
			c.t.Log(strings.TrimSuffix(line, "\n"))
		}
	}
}
