package cnitest_test

import (
	"errors"
	"flag"
	"fmt"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bridge"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/network/weave"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden: what all drivers together say of clusters as they were: on each network, and on one over which somebody
// had installed another. A change in what is found shows as a change of these lines.
func TestGolden(t *testing.T) {
	var seen strings.Builder
	for _, name := range []string{"flannel", "calico", "calico-v3.30.1", "calico-typha-v3.28.5", "calico-bgp",
		"weave", "bridge", "mixed"} {
		tell(&seen, name, cnitest.Golden(t, name))
	}
	mixed := cnitest.Golden(t, "mixed")
	mixed.DaemonSets = nil // somebody deleted both agents
	tell(&seen, "mixed, and both agents deleted", mixed)
	cnitest.Same(t, "testdata/golden/found.txt", seen.String(), *update)
}

func tell(to *strings.Builder, name string, snapshot *cluster.Snapshot) {
	fmt.Fprintf(to, "# %s\n", name)
	for _, found := range drivers.All().Detect(snapshot) {
		c := found.Capabilities
		fmt.Fprintf(to, "%s %s\n  agent %s, pods in %v\n", found.CNI, found.Version, found.Agent, found.PodCIDRs)
		fmt.Fprintf(to, "  %s vni %d port %d, mtu %d, links %v, %s, policy %s\n",
			c.Encapsulation, c.VNI, c.Port, c.MTU, c.HostLinks, c.ConfName, c.Policy)
		for _, part := range found.Parts {
			if part.Kind != "CustomResourceDefinition" {
				fmt.Fprintf(to, "  part %s\n", part)
			}
		}
		for _, problem := range found.Problems {
			fmt.Fprintf(to, "  problem: %s\n", problem)
		}
	}
	for _, stranger := range cni.Strangers(snapshot, drivers.All().Detect(snapshot)) {
		fmt.Fprintf(to, "stranger: %s\n", stranger)
	}
	fmt.Fprintln(to)
}

// TestGoldenAcceptance runs the suite on the clusters as they were.
func TestGoldenAcceptance(t *testing.T) {
	for _, c := range []struct {
		driver  cni.Driver
		present string
		other   string
	}{
		{flannel.Driver{}, "flannel", "calico"}, {flannel.Driver{}, "flannel", "weave"},
		{calico.Driver{}, "calico", "weave"}, {calico.Driver{}, "calico", "flannel"},
		{calico.Driver{}, "calico-v3.30.1", "bridge"}, {calico.Driver{}, "calico-typha-v3.28.5", "flannel"},
		{calico.Driver{}, "calico-bgp", "weave"}, {bridge.Driver{}, "bridge", "calico-bgp"},
		{weave.Driver{}, "weave", "flannel"},
		{weave.Driver{}, "weave", "bridge"},
	} {
		t.Run(c.present+" beside "+c.other, func(t *testing.T) {
			cnitest.Detects(t, cnitest.Case{Driver: c.driver, Present: cnitest.Golden(t, c.present),
				Other: cnitest.Golden(t, c.other)})
		})
	}
}

// TestRefusals: what every driver answers to a manifest that it makes nothing of.
func TestRefusals(t *testing.T) {
	var seen strings.Builder
	operator, objects := cnitest.Fixture(t, "tigera-operator-v1.40.0.yaml"),
		cnitest.Fixture(t, "tigera-custom-resources.yaml")
	manifests := map[string][]unstructured.Unstructured{"nothing": nil,
		"the operator": slices.Concat(operator, objects), "the operator's own objects": objects}
	for _, driver := range drivers.All() {
		var last string
		for _, name := range slices.Sorted(maps.Keys(manifests)) {
			request := cni.Request{Manifest: manifests[name], PodCIDR: "10.96.0.0/16", NodeLabel: v1alpha1.LabelTarget}
			_, err := driver.Install(request)
			var refused *cni.Refusal
			if !errors.As(err, &refused) || refused.Hint == "" {
				t.Errorf("%s, given %s: no refusal with a hint: %v", driver.Name(), name, err)
				continue
			}
			if refused.Message == last {
				continue
			}
			last = refused.Message
			fmt.Fprintf(&seen, "%s, given %s: %s\n  hint: %s\n", driver.Name(), name, refused.Message, refused.Hint)
		}
	}
	cnitest.Same(t, "testdata/golden/refused.txt", seen.String(), *update)
}
