package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDifferences lists which policies are named, and for what.
func TestDifferences(t *testing.T) {
	named := func(text, name string) string { return strings.Replace(text, "name: k", "name: "+name, 1) }
	moved := func(p Profile, to string) Profile {
		p.Pods = []netip.Prefix{netip.MustParsePrefix(to)}
		return p
	}
	nothing := Profile{CNI: "flannel", Dialect: None}
	for _, test := range []struct {
		name          string
		before, after Profile
		policies      []string
		want          []string
	}{
		{"the rule that matched, not the policies beside it",
			moved(kubeRouter, "10.0.0.0/16"), moved(calicoNow, "10.9.0.0/16"), []string{
				named(kubernetesText("{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"), "labels"),
				named(kubernetesText("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: "+
					"10.0.1.0/24}}]}]}"), "range")},
			[]string{"range ingress closes 1 1 every port addresses"}},
		{"a policy that is in force on one side, not the one whose rule matched", kubeRouter, calicoNow, []string{
			kubernetesText("{podSelector: {matchLabels: {app: web}}, ingress: [{}]}"),
			calicoText("GlobalNetworkPolicy", "g",
				"{order: 1, selector: app == 'web', types: [Ingress], ingress: [{action: Deny, source: {selector: "+
					"app == 'client'}, protocol: TCP, destination: {ports: [80]}}, {action: Pass}]}")},
			[]string{"g ingress closes 1 1 TCP 80 after"}},
		{"named ports differ by the pod that listens", nothing, kubeRouter, []string{
			"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: out, namespace: other}\n" +
				"spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: " +
				"{}}], ports: [{port: http}]}]}"},
			[]string{"out egress closes 1 3 every port after"}},
		{"the other end hides it", kubeRouter, calicoNow, []string{
			kubernetesText("{podSelector: {}}"),
			calicoText("GlobalNetworkPolicy", "g", "{selector: app == 'client', types: [Egress], egress: "+
				"[{action: Deny, destination: {namespaceSelector: team == 'shop'}}, {action: Allow}]}")}, nil},
		{"half a range", kubeRouter, moved(kubeRouter, "10.9.0.0/16"), []string{
			kubernetesText("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: " +
				"10.9.0.0/17}}, {ipBlock: {cidr: 10.0.1.0/24}}]}]}")},
			[]string{"k ingress may close 1 1 every port addresses", "k ingress may open 1 2 every port addresses"}},
		{"a deviation by its name", calicoNow, ciliumOld, []string{kubernetesText(
			"{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80, endPort: 81}]}]}")},
			[]string{"k ingress closes 1 4 TCP 81 " + deviatesEndPort}},
		{"weave leaves it out", weave, calicoNow, []string{kubernetesText(
			"{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{ports: [{port: http}]}]}")},
			[]string{"k ingress closes 1 4 TCP 1-8079, 8081-65535; all UDP; all SCTP after"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			model := Build(snapshotOf(t, append([]string{town}, test.policies...)...), test.before, test.after)
			var got []string
			for _, d := range model.Differences() {
				line := fmt.Sprintf("%s %s %s %d %d %s", d.Policy.Name, d.Direction, d.Change, d.Pods, d.Peers, d.Ports)
				switch {
				case d.Only == After:
					line += " after"
				case d.Only == Before:
					line += " before"
				case len(d.Deviations) > 0:
					line += " " + strings.Join(d.Deviations, " ")
				case d.Addresses:
					line += " addresses"
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
