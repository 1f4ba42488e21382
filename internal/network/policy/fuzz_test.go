package policy

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/document"
)

// FuzzBuild holds that no policy makes the model panic, and that every witness is a difference.
func FuzzBuild(f *testing.F) {
	for _, text := range []string{
		kubernetesText("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/16, except: [10.0.1.0/24, " +
			"'::1']}}], ports: [{port: 80, endPort: 90}, {port: http}]}]}"),
		kubernetesText("{podSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}, policyTypes: " +
			"[Egress], egress: [{to: [{namespaceSelector: {}}]}]}"),
		calicoText("NetworkPolicy", "c",
			"{order: 1, tier: t, selector: app == 'web', types: [Ingress], ingress: [{action: Pass, protocol: UDP, "+
				"source: {nets: [0.0.0.0/0], notSelector: has(app)}, destination: {ports: ['1:2', x]}}]}"),
		calicoText("GlobalNetworkPolicy", "g", "{namespaceSelector: all(), egress: [{action: Deny, source: "+
			"{selector: app == 'db'}, destination: {serviceAccounts: {names: [web]}}}]}"),
		ciliumText("CiliumNetworkPolicy", "{endpointSelector: {matchLabels: {k8s:app: web}}, ingressDeny: "+
			"[{fromEntities: [all], toPorts: [{ports: [{port: '1', endPort: 9}]}]}], egress: [{}]}"),
		"apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: w}\n" +
			"specs: [{endpointSelector: {}, ingress: [{fromCIDRSet: [{cidr: 1.2.3.4/8}]}]}]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		builder := document.New("test")
		if builder.Add("town", strings.NewReader(town), false) != nil ||
			builder.Add("fuzz", strings.NewReader(text), true) != nil {
			return
		}
		snapshot, _ := builder.Snapshot()
		_ = Translate(snapshot, calicoNow).Judge(snapshot, calicoNow, ciliumNow)
		profiles := append(randomProfiles(), weave, ciliumOld)
		for i, after := range profiles {
			model := Build(snapshot, profiles[(i+len(text))%len(profiles)], after)
			for _, d := range model.Differences() {
				w := d.Witness
				for side, want := range []Verdict{w.Before, w.After} {
					if got, err := model.Verdict(Side(side), name(w.From), name(w.To), w.Port); err != nil ||
						got != want {
						t.Errorf("the witness of %v: %s, want %s (%v)", d, got, want, err)
					}
				}
				if w.Before == w.After {
					t.Errorf("no difference: %v", d)
				}
			}
			if len(model.Probes()) > len(model.Differences()) {
				t.Errorf("more probes than differences")
			}
		}
	})
}
