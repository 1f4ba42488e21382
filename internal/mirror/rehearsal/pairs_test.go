package rehearsal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// TestUDP: stand-ins ask a port of UDP by datagrams, through a Service's port of UDP, or one that is made for it. TCP
// on the same port is another connection.
func TestUDP(t *testing.T) {
	m := &maker{Copy: &Copy{}, original: &cluster.Snapshot{}, networks: []*cni.Installation{{}}}
	both := []corev1.ContainerPort{{ContainerPort: 53}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP},
		{ContainerPort: 54, Protocol: corev1.ProtocolUDP}, {ContainerPort: 55, Protocol: corev1.ProtocolSCTP}}
	for i, name := range []string{"a", "b"} {
		pod := talker(name)
		pod.Labels, pod.Status.PodIP = map[string]string{"app": name}, []string{"10.1.0.1", "10.1.0.2"}[i]
		pod.Spec.Containers = []corev1.Container{{Name: "first", Ports: both[:4*i]}}
		m.original.Pods = append(m.original.Pods, pod)
		m.pods = append(m.pods, podOf{workload: "Pod " + key(&pod), namespace: "shop", labels: pod.Labels})
		m.Objects = append(m.Objects, encode(&pod, corev1.SchemeGroupVersion.WithKind("Pod")))
	}
	m.original.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	m.original.Services = []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Selector: map[string]string{"app": "b"},
			Ports: []corev1.ServicePort{{Port: 5353, TargetPort: intstr.FromInt32(53), Protocol: corev1.ProtocolUDP}}}}}
	m.traffic()
	var texts []string
	for _, pair := range m.Traffic {
		texts = append(texts, pair.String()+" "+pair.at())
	}
	slices.Sort(texts)
	want := []string{
		"Pod shop/a to Pod shop/b (Service shop/b, UDP port 5353) shop/b:5353/UDP",
		"Pod shop/a to Pod shop/b (Service shop/theseus-asked-0, port 53) shop/theseus-asked-0:53",
		"Pod shop/a to Pod shop/b (Service shop/theseus-asked-1, UDP port 54) shop/theseus-asked-1:54/UDP"}
	if !slices.Equal(texts, want) {
		t.Errorf("got  %q\nwant %q", texts, want)
	}
	var protocols []string
	for _, object := range m.Objects {
		if ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports"); object.GetKind() == "Service" {
			protocols = append(protocols, ports[0].(map[string]any)["protocol"].(string))
		}
	}
	if !slices.Equal(protocols, []string{"TCP", "UDP"}) {
		t.Errorf("made Services of %q", protocols)
	}
	if err := Address(m.Objects[0], func(string) (string, error) { return "10.96.0.9", nil }); err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(m.Objects[0].Object, "spec", "containers")
	if args := fmt.Sprint(containers); !strings.Contains(args, "=udp/10.96.0.9:5353") ||
		!strings.Contains(args, "=10.96.0.9:53") {
		t.Errorf("the arguments are %s", args)
	}
}

// TestAlone: stand-ins ask a workload only through a Service that sends to its pods alone. Where labels of other
// workloads match too, in the same namespace, it is not asked.
func TestAlone(t *testing.T) {
	app, canary := map[string]string{"app": "web"}, map[string]string{"app": "web", "track": "canary"}
	for name, c := range map[string]struct {
		other  map[string]string
		in     string
		to     []string
		extras int
	}{
		"different":         {map[string]string{"app": "db"}, "shop", []string{"Pod shop/a", "Pod shop/b"}, 2},
		"wider":             {canary, "shop", []string{"Pod shop/b"}, 1},
		"the same":          {app, "shop", nil, 0},
		"another namespace": {app, "store", []string{"Pod shop/a", "Pod store/b"}, 2},
		"no labels":         {nil, "shop", []string{"Pod shop/a"}, 1},
	} {
		m := &maker{Copy: &Copy{}, original: &cluster.Snapshot{}, networks: []*cni.Installation{{}}}
		for i, one := range []struct {
			namespace, name string
			labels          map[string]string
		}{{"shop", "a", app}, {c.in, "b", c.other}} {
			pod := talker(one.name)
			pod.Namespace, pod.Labels, pod.Status.PodIP = one.namespace, one.labels, []string{"10.1.0.1", "10.1.0.2"}[i]
			pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
			m.original.Pods = append(m.original.Pods, pod)
			m.original.Namespaces = append(m.original.Namespaces,
				corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one.namespace}})
			m.pods = append(m.pods, podOf{workload: "Pod " + key(&pod), namespace: one.namespace, labels: one.labels})
		}
		m.traffic()
		var to []string
		for _, pair := range m.Traffic {
			to = append(to, pair.To)
		}
		slices.Sort(to)
		if !slices.Equal(to, c.to) || m.Extra != c.extras {
			t.Errorf("%s: %v, %d Services", name, m.Traffic, m.Extra)
		}
	}
}
