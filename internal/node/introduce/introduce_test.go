package introduce_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cilium"
	"github.com/theseus-cni/theseus/internal/node/introduce"
)

const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.cilium.io},
spec: {group: cilium.io, scope: %[3]s, names: {kind: %[2]s, plural: %[1]s},
versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

var (
	podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	endpoints   = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumendpoints"}
	bindings    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterrolebindings"}
	identities          = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumidentities"}
	flannelPods         = netip.MustParsePrefix("10.244.0.0/16")
	serviceAccount      = "system:serviceaccount:theseus-system:" + manifest.IntroduceName
	introducerOfCilium  = cilium.Driver{}
	introductionLimit   = 20 * time.Second
	namespaceOfTheTests = "shop"
)

// world is a real API server, on which nothing runs: the test says of pods what kubelets would.
type world struct {
	*testing.T
	admin *dynamic.DynamicClient
	rig   *rest.Config
}

func newWorld(t *testing.T) *world {
	program := clustertest.Program(t, "pods are introduced in a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{serviceAccount}})
	w := &world{T: t, rig: config, admin: dynamic.NewForConfigOrDie(config)}
	w.apply("apiextensions.k8s.io", "v1", "customresourcedefinitions",
		fmt.Sprintf(definition, "ciliumendpoints", "CiliumEndpoint", "Namespaced"))
	w.apply("apiextensions.k8s.io", "v1", "customresourcedefinitions",
		fmt.Sprintf(definition, "ciliumidentities", "CiliumIdentity", "Cluster"))
	w.apply("", "v1", "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: red}}}")
	w.apply("", "v1", "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: theseus-system}}")
	w.apply("", "v1", "serviceaccounts",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}")
	w.grant()
	w.until("the CRDs are served", func() bool {
		_, err := w.admin.Resource(endpoints).List(t.Context(), metav1.ListOptions{})
		_, other := w.admin.Resource(identities).List(t.Context(), metav1.ListOptions{})
		return err == nil && other == nil
	})
	return w
}

// grant makes the writer's account and its rights.
func (w *world) grant() {
	w.Helper()
	kinds := map[string][2]string{"ServiceAccount": {"", "serviceaccounts"},
		"ClusterRole":        {"rbac.authorization.k8s.io", "clusterroles"},
		"ClusterRoleBinding": {"rbac.authorization.k8s.io", "clusterrolebindings"}}
	for _, object := range manifest.Introduce("image", "cilium", []string{flannelPods.String()},
		introducerOfCilium.Rights(), 2, nil) {
		if kind, ok := kinds[object.GetKind()]; ok {
			text, err := yaml.Marshal(object.Object)
			w.must(err)
			w.apply(kind[0], "v1", kind[1], string(text))
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) apply(group, version, resource, text string) *unstructured.Unstructured {
	w.Helper()
	object := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(text), object))
	client := w.admin.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	var at dynamic.ResourceInterface = client
	if object.GetNamespace() != "" {
		at = client.Namespace(object.GetNamespace())
	}
	done, err := at.Apply(w.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "test", Force: true})
	w.must(err)
	return done
}

// pod makes a pod that runs with an address.
func (w *world) pod(name, address, extra string) *unstructured.Unstructured {
	w.Helper()
	made := w.apply("", "v1", "pods", "{apiVersion: v1, kind: Pod, metadata: {name: "+name+
		", namespace: shop, labels: {app: web, pod-template-hash: abc}}, "+
		"spec: {automountServiceAccountToken: false, containers: [{name: c, image: i, ports: [{name: http, "+
		"containerPort: 80}]}]"+extra+"}}")
	w.status(name, "Running", address)
	return made
}

func (w *world) status(name, phase, address string) {
	w.Helper()
	_, err := w.admin.Resource(podResource).Namespace("shop").Patch(w.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"status": {"phase": %q, "podIP": %q, "podIPs": [{"ip": %[2]q}], "hostIP": "192.0.2.1"}}`,
			phase, address), metav1.PatchOptions{}, "status")
	w.must(err)
}

func (w *world) until(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(introductionLimit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s", introductionLimit, what)
		}
	}
}

// start runs a writer with the rights of its account. It ends with stop.
func (w *world) start() (ready func() bool, stop func()) {
	config := rest.CopyConfig(w.rig)
	config.BearerToken = serviceAccount
	config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = nil, nil
	config.TLSClientConfig.CertFile, config.TLSClientConfig.KeyFile = "", ""
	address := clustertest.Free(w)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	writer := &introduce.Writer{Client: dynamic.NewForConfigOrDie(config), Network: introducerOfCilium,
		Ranges: []netip.Prefix{flannelPods}, Log: slog.New(slog.NewTextHandler(w.Output(), nil)), Ready: address}
	go func() { ended <- writer.Run(ctx) }()
	ready = func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	return ready, func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the writer ended: %v", err)
		}
	}
}

func (w *world) endpoint(name string) *unstructured.Unstructured {
	w.Helper()
	found, err := w.admin.Resource(endpoints).Namespace(namespaceOfTheTests).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return found
}

// says returns the labels, the identity and the address of an endpoint.
func says(endpoint *unstructured.Unstructured) (labels []string, identity int64, address string) {
	labels, _, _ = unstructured.NestedStringSlice(endpoint.Object, "status", "identity", "labels")
	identity, _, _ = unstructured.NestedInt64(endpoint.Object, "status", "identity", "id")
	all, _, _ := unstructured.NestedSlice(endpoint.Object, "status", "networking", "addressing")
	if len(all) == 1 {
		address, _ = all[0].(map[string]any)["ipv4"].(string)
	}
	return labels, identity, address
}

// TestAPIServer: pods of the other network are introduced, those of the start before the writer is ready, and later
// ones while it runs; it follows labels of pods and namespaces, ended pods, and names that are used again; and it makes
// again what is deleted. Two writers at once, as after a node that was lost, agree. It has no other rights than those
// of its role.
func TestAPIServer(t *testing.T) {
	w := newWorld(t)
	first := w.pod("first", "10.244.1.5", "")
	w.pod("same", "10.244.2.5", "")
	w.pod("cilium", "10.96.0.5", "")
	w.pod("host", "192.0.2.1", ", hostNetwork: true")
	w.pod("done", "10.244.1.6", "")
	w.status("done", "Succeeded", "10.244.1.6")
	ready, stop := w.start()
	w.until("the writer is ready", ready)
	one, same := w.endpoint("first"), w.endpoint("same")
	if one == nil || same == nil {
		t.Fatal("it is ready, and pods are not introduced")
	}
	labels, identity, address := says(one)
	want := []string{"k8s:app=web", "k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop",
		"k8s:io.cilium.k8s.namespace.labels.team=red", "k8s:io.cilium.k8s.policy.cluster=default",
		"k8s:io.cilium.k8s.policy.serviceaccount=default", "k8s:io.kubernetes.pod.namespace=shop"}
	want = append([]string{"gen:io.cilium.k8s.named-ports=http.TCP.80"}, want...)
	if !slices.Equal(labels, want) || address != "10.244.1.5" {
		t.Errorf("of the first pod it is said: %s at %s", labels, address)
	}
	if _, other, _ := says(same); other != identity || identity < 256 || identity > 65535 {
		t.Errorf("pods with the same labels have the identities %d and %d", identity, other)
	}
	if owners := one.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != first.GetUID() ||
		owners[0].Kind != "Pod" {
		t.Errorf("the owner is %+v", owners)
	}
	for _, name := range []string{"cilium", "host", "done"} {
		if w.endpoint(name) != nil {
			t.Errorf("%s is introduced, which is none of the other network's pods", name)
		}
	}

	w.pod("later", "10.244.1.7", "")
	w.until("a later pod is introduced", func() bool { return w.endpoint("later") != nil })
	w.must(w.admin.Resource(endpoints).Namespace("shop").Delete(t.Context(), "later", metav1.DeleteOptions{}))
	w.until("what was deleted is there again", func() bool { return w.endpoint("later") != nil })
	_, err := w.admin.Resource(podResource).Namespace("shop").Patch(t.Context(), "later", types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"app": "db"}}}`), metav1.PatchOptions{})
	w.must(err)
	w.until("a pod's labels are followed", func() bool {
		labels, other, _ := says(w.endpoint("later"))
		return slices.Contains(labels, "k8s:app=db") && other != identity
	})
	w.apply("", "v1", "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: blue}}}")
	w.until("a namespace's labels are followed", func() bool {
		labels, other, _ := says(w.endpoint("first"))
		return slices.Contains(labels, "k8s:io.cilium.k8s.namespace.labels.team=blue") && other != identity
	})
	w.status("same", "Failed", "10.244.2.5")
	w.until("an ended pod, whose address another may get, has no endpoint", func() bool {
		return w.endpoint("same") == nil
	})

	w.must(w.admin.Resource(bindings).Delete(t.Context(), manifest.IntroduceName, metav1.DeleteOptions{}))
	w.pod("late", "10.244.1.8", "")
	w.until("a writer that cannot introduce a pod is not ready", func() bool { return !ready() })
	w.grant()
	w.until("it is ready again", func() bool { return w.endpoint("late") != nil && ready() })

	gone := int64(0)
	w.must(w.admin.Resource(podResource).Namespace("shop").Delete(t.Context(), "late",
		metav1.DeleteOptions{GracePeriodSeconds: &gone}))
	w.until("the endpoint of a pod that is gone is gone, without a garbage collector", func() bool {
		return w.endpoint("late") == nil
	})

	otherReady, otherStop := w.start()
	w.until("a second writer is ready", otherReady)
	stop()
	now := int64(0)
	w.must(w.admin.Resource(podResource).Namespace("shop").Delete(t.Context(), "first",
		metav1.DeleteOptions{GracePeriodSeconds: &now}))
	again := w.pod("first", "10.244.2.9", "")
	w.until("a name that comes again is of the new pod", func() bool {
		endpoint := w.endpoint("first")
		if endpoint == nil || len(endpoint.GetOwnerReferences()) != 1 {
			return false
		}
		_, _, address := says(endpoint)
		return endpoint.GetOwnerReferences()[0].UID == again.GetUID() && address == "10.244.2.9"
	})
	otherStop()
	w.must(w.admin.Resource(podResource).Namespace("shop").Delete(t.Context(), "first",
		metav1.DeleteOptions{GracePeriodSeconds: &now}))
	moved := w.pod("first", "10.96.0.9", "")
	_, thirdStop := w.start()
	w.until("the endpoint that an agent has taken over is its pod's", func() bool {
		endpoint := w.endpoint("first")
		return endpoint != nil && endpoint.GetOwnerReferences()[0].UID == moved.GetUID() &&
			len(endpoint.GetLabels()) == 0
	})
	thirdStop()
	all, err := w.admin.Resource(identities).List(t.Context(), metav1.ListOptions{})
	w.must(err)
	seen := map[string]string{}
	for i := range all.Items {
		labels := fmt.Sprint(introducerOfCilium.Labels(&all.Items[i]))
		if seen[labels] != "" {
			t.Errorf("the identities %s and %s are of the same labels", seen[labels], all.Items[i].GetName())
		}
		seen[labels] = all.Items[i].GetName()
	}
	if len(seen) != 4 { // web and db, in a red and in a blue namespace
		t.Errorf("the identities are %s", strings.Join(slices.Sorted(func(yield func(string) bool) {
			for labels := range seen {
				if !yield(labels) {
					return
				}
			}
		}), "\n"))
	}
}
