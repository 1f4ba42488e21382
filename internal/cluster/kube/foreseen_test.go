package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestForeseen: the paths that are foreseen are those that the agents get, in all but their addresses, so both send the
// same; and a cluster without a name server and without a known address of the API server has fewer.
func TestForeseen(t *testing.T) {
	service := func(namespace, name, address string, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: address, Ports: ports}}
	}
	leads := func(to string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: to + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: to}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}}, {Addresses: []string{"10.244.2.2"}}}}
	}
	own, port := manifest.ProbeServiceName(path.Old), manifest.ProbeNodePortName(path.Old)
	ownLocal, portLocal := manifest.ProbeLocalName(path.Old), manifest.ProbeLocalPortName(path.Old)
	every := step.PathSet{Old: []string{step.EveryNode}}
	dns, err := path.ParseResponder("dns:example.org")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := path.ParseResponder("tcp:127.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	for name, measured := range map[string]Measured{
		"an unknown network": {},
		"everything": {FullSize: 1422, Denied: map[string]bool{path.Old: true},
			NodesOutside: map[string]bool{path.Old: true}},
		"small":      {Interval: 50 * time.Millisecond, Denied: map[string]bool{path.Old: true}},
		"fine":       {Interval: 5 * time.Millisecond, FullSize: 1422},
		"a guard":    {Local: true, HostPorts: true, LocalDNS: "169.254.20.10:53"},
		"responders": {Outside: []path.Responder{dns, tcp}, OutsideEvery: time.Second / 7},
	} {
		w := probed(t, apiServerAt("198.18.0.20"), service("kube-system", "kube-dns", "10.97.0.10"),
			service(v1alpha1.Namespace, own, "10.97.0.9"), leads(own), leads(port), leads(ownLocal), leads(portLocal),
			service(v1alpha1.Namespace, ownLocal, "10.97.0.7"),
			service(v1alpha1.Namespace, portLocal, "10.97.0.6",
				corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: manifest.PortTCP, NodePort: 30125}),
			service(v1alpha1.Namespace, port, "10.97.0.8",
				corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: manifest.PortTCP, NodePort: 30123}))
		w.Measured = measured
		if _, _, err := w.setPathsOf(every); err != nil {
			t.Fatal(err)
		}
		plans, err := w.probePlans(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		sent, foreseen := pathsOf(plans), measured.Foreseen([]string{"a", "b"}, every)
		intervals := func(paths []v1alpha1.Path) map[string]int {
			all := map[string]int{}
			for _, one := range paths {
				all[one.ID] = one.IntervalMillis
			}
			return all
		}
		if diff := cmp.Diff(intervals(foreseen), intervals(sent)); diff != "" {
			t.Errorf("%s: foreseen, and sent:\n%s", name, diff)
		}
		if said, is := path.RateOf(foreseen), path.RateOf(sent); said != is || is.All == 0 {
			t.Errorf("%s: foreseen %+v, sent %+v", name, said, is)
		}
	}
	w := probed(t)
	if _, _, err := w.setPathsOf(every); err != nil {
		t.Fatal(err)
	}
	plans, err := w.probePlans(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if said, is := path.RateOf(Measured{}.Foreseen([]string{"a", "b"}, every)),
		path.RateOf(pathsOf(plans)); is.All >= said.All || is.Most >= said.Most {
		t.Errorf("foreseen %+v, sent %+v", said, is)
	}
}
