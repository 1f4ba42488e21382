package rehearsal

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

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
