package calico_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// byOperator is a request with the manifests of an operator's release and an Installation with these settings.
func byOperator(t *testing.T, release string, settings map[string]any) cni.Request {
	r := request(t)
	r.Manifest = slices.Concat(cnitest.Fixture(t, "operator-crds.yaml"),
		cnitest.Fixture(t, "tigera-operator-"+release+".yaml"), cnitest.Fixture(t, "tigera-custom-resources.yaml"))
	installation := find(t, r.Manifest, "Installation")
	for path, value := range settings {
		if err := unstructured.SetNestedField(installation.Object, value,
			append([]string{"spec"}, strings.Split(path, ".")...)...); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// nftables is what the source of these tests asks for, next to which kube-router enforces policy.
var nftables = map[string]any{"calicoNetwork.linuxDataplane": "Nftables"}

// TestOperatorAcceptance holds a Calico that its operator installs to the contract.
func TestOperatorAcceptance(t *testing.T) {
	cnitest.Run(t, cnitest.Case{
		Driver:  calico.Driver{},
		Present: cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
		Other:   cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		Request: byOperator(t, "v1.40.0", nftables), Golden: "testdata/install-operator-v1.40.0.txt", Update: *update,
	})
}

// TestOperatorRefused: nothing that would take nodes at once, or that was not thought through, becomes a plan.
func TestOperatorRefused(t *testing.T) {
	with := func(path string, value any) map[string]any {
		return map[string]any{"calicoNetwork.linuxDataplane": "Nftables", path: value}
	}
	pool := func(cidr string) any { return map[string]any{"cidr": cidr} }
	for _, c := range []struct {
		release  string
		settings map[string]any
		without  string // a kind of document
		want     string
	}{
		{"v1.38.1", nftables, "", "no setting prevents that"},
		{"v1.40.0", nil, "", "Felix must keep its rules in nftables"},
		{"v1.40.0", nftables, "Deployment", "no Deployment tigera-operator"},
		{"v1.40.0", nftables, "Installation", "not the Installation default"},
		{"v1.40.0", nftables, "CustomResourceDefinition", "defines Installations and IPPools"},
		{"v1.40.0", with("calicoNetwork.linuxDataplane", "BPF"), "", "spec.calicoNetwork.linuxDataplane: BPF"},
		{"v1.40.0", with("cni", map[string]any{"type": "AmazonVPC"}), "", "spec.cni.type: AmazonVPC"},
		{"v1.40.0", with("cni", map[string]any{"confDir": "/run/cni"}), "", "spec.cni.confDir: /run/cni"},
		{"v1.40.0", with("variant", "TigeraSecureEnterprise"), "", "spec.variant: TigeraSecureEnterprise"},
		{"v1.40.0", with("calicoNetwork.ipPools", []any{pool("10.1.0.0/16"), pool("10.2.0.0/16")}), "", "2 pools"},
	} {
		r := byOperator(t, c.release, c.settings)
		r.Manifest = slices.DeleteFunc(r.Manifest, func(o unstructured.Unstructured) bool {
			return o.GetKind() == c.without
		})
		_, err := calico.Driver{}.Install(r)
		var refused *cni.Refusal
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, c.want) || refused.Hint == "" {
			t.Errorf("%s with %v without %q: %v, want %q", c.release, c.settings, c.without, err, c.want)
		}
	}

	// The definition says it where there is one, and the cluster may have it already.
	r := byOperator(t, "v1.40.0", nftables)
	unstructured.RemoveNestedField(find(t, r.Manifest, "CustomResourceDefinition").Object, "spec", "versions")
	for i := range r.Manifest {
		if r.Manifest[i].GetKind() == "CustomResourceDefinition" {
			r.Defined = append(r.Defined, r.Manifest[i].GetName())
		}
	}
	r.Manifest = slices.DeleteFunc(r.Manifest, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "CustomResourceDefinition"
	})
	if _, err := (calico.Driver{}).Install(r); err != nil {
		t.Errorf("with the cluster's definitions: %v", err)
	}

	r = byOperator(t, "v1.40.0", nftables)
	r.Takeover = &cni.Takeover{NodeBits: 24}
	_, err := calico.Driver{}.Install(r)
	var refused *cni.Refusal
	if !errors.As(err, &refused) || !refused.Recreate {
		t.Errorf("adopting: %v", err)
	}
}

// TestOperatorKeeps: what the user says in the Installation is kept where it fits.
func TestOperatorKeeps(t *testing.T) {
	r := byOperator(t, "v1.40.0", map[string]any{
		"calicoNetwork.linuxDataplane": "Nftables", "calicoNetwork.mtu": int64(1300),
		"calicoNetwork.nodeAddressAutodetectionV4": map[string]any{"interface": "eth1"},
		"calicoNetwork.ipPools": []any{map[string]any{"cidr": "192.168.0.0/16", "name": "pods", "blockSize": int64(24),
			"natOutgoing": "Disabled"}},
		"nodeUpdateStrategy": map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "25%"}},
	})
	target, err := calico.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	joint := text(t, find(t, target.Objects, "Installation"))
	for _, want := range []string{
		`"mtu":1300`, `"nodeAddressAutodetectionV4":{"interface":"eth1"}`,
		`"name":"pods"`, `"cidr":"10.96.0.0/16"`, `"blockSize":24`, `"natOutgoing":"Disabled"`, `"maxUnavailable":1`,
		`"confDir":"/etc/cni/net.d/theseus"`,
	} {
		if !strings.Contains(joint, want) {
			t.Errorf("the joint form lacks %s:\n%s", want, joint)
		}
	}
	if pool := text(t, find(t, target.Objects, "IPPool")); !strings.Contains(pool, `"name":"pods"`) ||
		!strings.Contains(pool, `"natOutgoing":false`) || !strings.Contains(pool, `"blockSize":24`) {
		t.Errorf("the pool is %s", pool)
	}
	if last := string(target.HandOver[len(target.HandOver)-1].Do.(step.Patch).Merge); !strings.Contains(last,
		`"maxUnavailable":"25%"`) {
		t.Errorf("handed over with %s", last)
	}
}
