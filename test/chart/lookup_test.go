package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

var endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

// cluster answers the lookups of templates.
type cluster struct{ client dynamic.Interface }

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if apiVersion != "discovery.k8s.io/v1" || kind != "EndpointSlice" {
		return nil, false, fmt.Errorf("the chart asks for %s %s", apiVersion, kind)
	}
	return c.client.Resource(endpointSlices), true, nil
}

// addressed renders the chart with access to a cluster that has an EndpointSlice of the API servers, or none, and
// returns the flags of the controller that have their addresses, without the dashes.
func addressed(t *testing.T, slice, text string) []string {
	t.Helper()
	var known []runtime.Object
	if slice != "" {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(slice), &object.Object); err != nil {
			t.Fatal(err)
		}
		known = append(known, object)
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{endpointSlices: "EndpointSliceList"}, known...)
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	chart := load(t)
	told, err := chartutil.ToRenderValues(chart, values(t, text),
		chartutil.ReleaseOptions{Name: "theseus", Namespace: "theseus-system"}, capabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.RenderWithClientProvider(chart, told, cluster{client})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(files["theseus/templates/deployment.yaml"]) {
		if _, flag, ok := strings.Cut(strings.TrimSpace(line), "--"); ok && strings.Contains(flag, "api-server=") {
			found = append(found, strings.TrimSuffix(flag, `"`))
		}
	}
	return found
}

// TestAPIServers: without values the chart asks the cluster for the addresses of its API servers. These are where the
// controller begins, since a control plane gets other addresses in time; those of the values are the only ones.
func TestAPIServers(t *testing.T) {
	const slice = `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: kubernetes, namespace: default}, `
	for name, c := range map[string]struct {
		slice, values string
		want          []string
	}{
		"one": {slice + `endpoints: [{addresses: [10.0.0.1]}], ports: [{name: https, port: 6443}]}`,
			"", []string{"first-api-server=10.0.0.1:6443"}},
		"three": {slice +
			`endpoints: [{addresses: [10.0.0.1, 10.0.0.2]}, {addresses: [10.0.0.3]}], ports: [{name: https, port: 443}]}`,
			"", []string{"first-api-server=10.0.0.1:443", "first-api-server=10.0.0.2:443",
				"first-api-server=10.0.0.3:443"}},
		"IPv6": {slice + `endpoints: [{addresses: ["fd00::1"]}], ports: [{name: https, port: 6443}]}`,
			"", []string{"first-api-server=[fd00::1]:6443"}},
		"other port": {slice +
			`endpoints: [{addresses: [10.0.0.1]}], ports: [{name: metrics, port: 9000}, {name: https, port: 6443}]}`,
			"", []string{"first-api-server=10.0.0.1:6443"}},
		"no slice":   {"", "", nil},
		"no address": {slice + `endpoints: [], ports: []}`, "", nil},
		"values": {slice + `endpoints: [{addresses: [10.0.0.1]}], ports: [{name: https, port: 6443}]}`,
			"apiServers: ['api.example.com:443']", []string{"api-server=api.example.com:443"}},
	} {
		if got := addressed(t, c.slice, c.values); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
