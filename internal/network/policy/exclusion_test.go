package policy

import (
	"slices"
	"strings"
	"testing"
)

// TestExclusionKubernetes: the same of a NetworkPolicy, and the translation reports it.
func TestExclusionKubernetes(t *testing.T) {
	for _, test := range []struct {
		peer string
		want Verdict
	}{
		{"{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [x]}]}}", Allow},
		{"{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}, podSelector: {}}", Allow},
		{"{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [x]}]}, podSelector: " +
			"{matchLabels: {app: db}}}", Deny},
		{"{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [x]}, {key: " +
			"kubernetes.io/metadata.name, operator: Exists}]}}", Deny},
		{"{namespaceSelector: {}}", Deny},
		{"{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}", Deny},
	} {
		snapshot := snapshotOf(t, town, kubernetesText("{podSelector: {matchLabels: {app: web}}, ingress: [{from: ["+
			test.peer+"]}]}"))
		m := Build(snapshot, calicoNow, ciliumNow)
		for side, want := range []Verdict{Deny, test.want} {
			got, err := m.Verdict(Side(side), "host/agent", "shop/web", Port{"TCP", 80})
			if got != want || err != nil {
				t.Errorf("%s: side %d: %s, want %s (%v)", test.peer, side, got, want, err)
			}
		}
		opens := test.want == Allow
		outside := slices.ContainsFunc(m.OutsideDifferences(), func(o Outside) bool { return o.Change == Opens })
		if reported := len(Translate(snapshot, calicoNow).Untranslated) > 0; outside != opens || reported != opens {
			t.Errorf("%s: outside %v, reported %v, want %v", test.peer, outside, reported, opens)
		}
	}
}

// TestExclusion: a selector that only excludes namespaces also selects nodes, in the releases of Cilium that add no
// demand to it, and where the policy's kind adds none.
func TestExclusion(t *testing.T) {
	const byName, byLabel = "{key: io.kubernetes.pod.namespace, operator: NotIn, values: [x]}",
		"{key: io.cilium.k8s.namespace.labels.team, operator: NotIn, values: [x]}"
	for _, test := range []struct {
		kind, version, expression string
		want                      Verdict
	}{
		{"CiliumNetworkPolicy", "", byName, Allow},
		{"CiliumNetworkPolicy", "v1.18.1", byName, Allow},
		{"CiliumNetworkPolicy", "v1.19.0", byName, Depends},
		{"CiliumNetworkPolicy", "", byLabel, Allow},
		{"CiliumClusterwideNetworkPolicy", "", byName, Allow},
		{"CiliumClusterwideNetworkPolicy", "", byLabel, Deny}, // Cilium adds that there must be a namespace
	} {
		rule := "{fromEndpoints: [{matchExpressions: [" + test.expression + "]}]}"
		profile := Profile{CNI: "cilium", Version: test.version, Dialect: Cilium}
		m := Build(snapshotOf(t, town, ciliumText(test.kind,
			"{endpointSelector: {matchLabels: {app: web}}, ingress: ["+rule+"]}")), profile, profile)
		if got, err := m.Verdict(After, "host/agent", "shop/web", Port{"TCP", 80}); got != test.want || err != nil {
			t.Errorf("%s %s %s: %s, want %s (%v)", test.kind, test.version, test.expression, got, test.want, err)
		}
		if said := len(m.Gaps()) > 0 && strings.Contains(m.Gaps()[0].What, "policyDefaultLocalCluster"); said !=
			(test.want == Depends) {
			t.Errorf("%s %s: gaps %v", test.kind, test.version, m.Gaps())
		}
	}
}
