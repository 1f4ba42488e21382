package cluster

import "testing"

// TestPoliciesUnread: a snapshot of an earlier release says nothing of the groups that it did not read; what was read,
// or was added from a file, is known.
func TestPoliciesUnread(t *testing.T) {
	const group, earlier = "policy.networking.k8s.io", "the theseus that took this snapshot did not read them"
	admin := PolicyKind{group, "AdminNetworkPolicy", "adminnetworkpolicies"}
	cilium := PolicyKind{"cilium.io", "CiliumNetworkPolicy", "ciliumnetworkpolicies"}
	live := []Source{{Resource: "cilium.io", From: "live"}, {Resource: "crd.projectcalico.org", From: "live"}}
	for name, test := range map[string]struct {
		kind    PolicyKind
		sources []Source
		want    string
	}{
		"files":                 {admin, []Source{{Resource: "pods", From: "pods.yaml"}}, ""},
		"of an earlier release": {admin, live, earlier},
		"with a file": {admin, append(live, Source{Resource: "adminnetworkpolicies." + group,
			From: "a.yaml"}), ""},
		"of this release": {admin, append(live, Source{Resource: group, From: "live"}), ""},
		"forbidden": {admin, append(live, Source{Resource: "adminnetworkpolicies." + group, Missing: "forbidden"},
			Source{Resource: group, From: "live"}), "forbidden"},
		"Cilium's": {cilium, live, ""},
		"Calico's": {PolicyKind{"projectcalico.org", "NetworkPolicy", "networkpolicies"}, live, ""},
	} {
		if got := (&Snapshot{Sources: test.sources}).PoliciesUnread(test.kind); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
