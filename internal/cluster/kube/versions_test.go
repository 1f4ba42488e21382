package kube

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// TestVersions: an upgrade of the control plane or of a node is noticed, and neither a node that comes, nor one that
// goes, nor an API server that does not answer is taken for one.
func TestVersions(t *testing.T) {
	kubelet := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}}}
	}
	for _, test := range []struct {
		name string
		then func(t *testing.T, w *world, server *fake.FakeDiscovery)
		want string
	}{
		{"nothing", func(*testing.T, *world, *fake.FakeDiscovery) {}, ""},
		{"the control plane", func(_ *testing.T, _ *world, server *fake.FakeDiscovery) {
			server.FakedServerVersion = &version.Info{GitVersion: "v1.35.0"}
		}, "Kubernetes is being upgraded: the API server was v1.34.4 when this run began, and is v1.35.0 now; finish " +
			"the upgrade first, as it moves pods and restarts nodes"},
		{"a node", func(t *testing.T, w *world, _ *fake.FakeDiscovery) {
			if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"),
				kubelet("b", "v1.35.0"), ""); err != nil {
				t.Fatal(err)
			}
		}, "Kubernetes is being upgraded: the kubelet of b was v1.34.4 when this run began, and is v1.35.0 now; " +
			"finish " +
			"the upgrade first, as it moves pods and restarts nodes"},
		{"a node that comes, and one that goes", func(t *testing.T, w *world, _ *fake.FakeDiscovery) {
			nodes := corev1.SchemeGroupVersion.WithResource("nodes")
			if err := errors.Join(w.typed.Tracker().Add(kubelet("c", "v1.35.0")),
				w.typed.Tracker().Delete(nodes, "", "a")); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"an outage", func(_ *testing.T, w *world, server *fake.FakeDiscovery) {
			server.FakedServerVersion = &version.Info{GitVersion: "v1.35.0"}
			w.typed.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("away")
			})
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{kubelet("a", "v1.34.4"), kubelet("b", "v1.34.4")})
			server := w.typed.Discovery().(*fake.FakeDiscovery)
			server.FakedServerVersion = &version.Info{GitVersion: "v1.34.4"}
			versions := &Versions{Client: &Client{Config: &rest.Config{}, Typed: w.typed,
				Discovery: memory.NewMemCacheClient(server)}, Clock: w}
			if got := versions.Changed(t.Context()); got != "" {
				t.Errorf("at first: %s", got)
			}
			test.then(t, w, server)
			if got := versions.Changed(t.Context()); got != "" {
				t.Errorf("at once again: %s", got)
			}
			w.now = w.now.Add(10 * time.Second)
			if got := versions.Changed(t.Context()); got != test.want {
				t.Errorf("later: %q, want %q", got, test.want)
			}
		})
	}
}
