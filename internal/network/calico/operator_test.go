package calico_test

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// TestRendered: the releases in the manifests of Calico v3.30.1 and v3.31.0, the ends of the table, and what is not in
// it.
func TestRendered(t *testing.T) {
	for tag, want := range map[string]string{
		"v1.38.1": "v3.30.1", "v1.40.0": "v3.31.0", "v1.34.0": "v3.28.0", "v1.34.14": "v3.28.5",
		"v1.36.16": "v3.29.7", "v1.40.15": "v3.31.7", "v1.40.16": "", "v1.35.0": "", "v1.42.0": "", "v2.40.0": "",
		"v1.38.0-0.dev": "", "master": "",
	} {
		manifest := cnitest.Documents(t,
			[]byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: tigera-operator}\n"+
				"spec: {template: {spec: {containers: [{name: tigera-operator, image: \"quay.io/tigera/operator:"+
				tag+"\"}]}}}\n"))
		if got := calico.Rendered(manifest); got != want {
			t.Errorf("%s makes %q, want %q", tag, got, want)
		}
	}
	for release, want := range map[string]string{"v1.38.1": "v3.30.1", "v1.40.0": "v3.31.0"} {
		if got := calico.Rendered(cnitest.Fixture(t, "tigera-operator-"+release+".yaml")); got != want {
			t.Errorf("the manifest of Calico %s makes %q", want, got)
		}
	}
	if got := calico.Rendered(cnitest.Fixture(t, "calico-manifest.yaml")); got != "" {
		t.Errorf("a manifest without the operator makes %q", got)
	}
}
