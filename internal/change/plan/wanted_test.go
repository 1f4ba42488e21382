package plan_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestWanted: without names the flag of the data plane is looked at, and what somebody wrote, wherever that is; by name
// any of which Felix tells.
func TestWanted(t *testing.T) {
	r := fleetOf(t, 2)
	felixConfiguration(r, "node.n-0", map[string]any{"iptablesRefreshInterval": "1m0s"})
	container := &r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
	container.Env = append(container.Env, corev1.EnvVar{Name: "FELIX_REPORTINGINTERVALSECS", Value: "40"})
	wanted := func(names ...string) string {
		all, err := rollout.Wanted(r.snapshot, drivers(), names)
		if err != nil {
			return err.Error()
		}
		text := ""
		for _, one := range all {
			text += fmt.Sprintf("%s %s=%s by %s says %s in %q; ", one.Node, one.Flag, one.Wanted, one.By,
				one.Expected.Says, one.Expected.Plane)
		}
		return text
	}
	for _, want := range []string{
		`n-0 iptablesRefreshInterval=1m0s by FelixConfiguration/node.n-0 says 60000000000 in ""; `,
		`n-0 nftablesMode=Disabled by  says Disabled in "iptables"; `,
		`reportingInterval=40 by DaemonSet/kube-system/calico-node says 40000000000 in ""; `,
	} {
		if got := wanted(); !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if got := wanted("wireguardEnabled"); strings.Count(got, "wireguardEnabled=false by  says false") != 2 ||
		strings.Contains(got, "nftablesMode") {
		t.Errorf("by name: %s", got)
	}
	if got := wanted("logSeverityScreen"); !strings.Contains(got, "Theseus cannot see on") {
		t.Errorf("what Felix does not tell: %s", got)
	}
}

// TestShown: what the kernel shows is looked for where there is something to see, of the flags of other components too.
func TestShown(t *testing.T) {
	r := fleetOf(t, 1)
	proofs := func(name string) int {
		all, err := rollout.Wanted(r.snapshot, drivers(), []string{name})
		if err != nil {
			return -1
		}
		return len(all[0].Expected.Proofs)
	}
	for name, want := range map[string]int{"vxlanPort": 1, "wireguardEnabled": 1, "ipv6Support": 0,
		"iptablesRefreshInterval": 0, "kube-proxy/mode": 1, "ipvs.strictARP": -1, "asNumber": -1} {
		if got := proofs(name); got != want {
			t.Errorf("%s: %d proofs, want %d", name, got, want)
		}
	}
	felixConfiguration(r, "default", map[string]any{"nftablesMode": "Enabled"})
	if got := proofs("ipv6Support"); got != 1 {
		t.Errorf("in nftables, ipv6Support has %d proofs", got)
	}
}

// TestJudge: what drift is.
func TestJudge(t *testing.T) {
	sound := func() *rollout.Attestation {
		return &rollout.Attestation{Wanted: "Enabled", Agent: "Enabled",
			Kernel: &step.Attestation{Kernel: step.NFTables},
			Expected: rollout.Expected{Parameter: "P", Says: "Enabled", Plane: step.NFTables,
				Proofs: []setting.Proof{{Links: []string{"a"}, NoLinks: []string{"b"}}}}}
	}
	links := func(names ...string) *cluster.NodeFacts {
		facts := &cluster.NodeFacts{}
		for _, name := range names {
			facts.Links = append(facts.Links, cluster.Link{Name: name})
		}
		return facts
	}
	for name, test := range map[string]struct {
		change func(*rollout.Attestation)
		said   string
		facts  *cluster.NodeFacts
		drift  string
	}{
		"none":           {nil, "enabled", links("a"), ""},
		"silence":        {nil, "", links("a"), "does not say"},
		"nothing to say": {func(a *rollout.Attestation) { a.Expected.Parameter = "" }, "", links("a"), ""},
		"another value": {func(a *rollout.Attestation) { a.Agent = "Disabled" }, "Disabled",
			links("a"), "runs with Disabled"},
		"another data plane": {func(a *rollout.Attestation) { a.Kernel.Kernel = "both" }, "Enabled", links("a"),
			"rules in both, not in nftables alone"},
		"left over": {func(a *rollout.Attestation) { a.Kernel.Sets = 2 }, "Enabled", links("a"), "2 ipsets"},
		"a pod without rules": {func(a *rollout.Attestation) { a.Kernel.Bare = []string{"cali1"} }, "Enabled",
			links("a"), "no rules for cali1"},
		"no interface": {nil, "Enabled", links(), "interface a does not exist"},
		"one too many": {nil, "Enabled", links("a", "b"), "interface b still exists"},
	} {
		a := sound()
		if test.change != nil {
			test.change(a)
		}
		a.Judge(test.said, test.facts)
		if got := strings.Join(a.Drift, "; "); (got == "") != (test.drift == "") || !strings.Contains(got, test.drift) {
			t.Errorf("%s: %q, want %q", name, got, test.drift)
		}
	}
}
