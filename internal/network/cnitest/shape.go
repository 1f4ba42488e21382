package cnitest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Shapes names the clusters in testdata/shapes: what a snapshot has of networks that people run, with the names,
// images, settings and files that the projects' own manifests give them.
func Shapes(t testing.TB) []string {
	t.Helper()
	files, err := testdata.ReadDir("testdata/shapes")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), ".yaml"))
	}
	return names
}

// Shape is one of them. Without Nodes of its own it has two. A document of the kind Facts has the files of the nodes'
// CNI folder; the subnet "node" is the node's own range.
func Shape(t testing.TB, name string) *cluster.Snapshot {
	t.Helper()
	var confs []cluster.Conf
	folder := ""
	objects := Fixture(t, "shapes/"+name+".yaml")
	objects = slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool {
		if o.GetKind() != "Facts" {
			return false
		}
		var said struct {
			Folder string         `json:"folder"`
			Confs  []cluster.Conf `json:"confs"`
		}
		delete(o.Object, "kind")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &said,
			true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		confs, folder = said.Confs, said.Folder
		return true
	})
	s := Snapshot(t, Ready(objects))
	for n := len(s.Nodes); n < 2; n++ {
		s.Nodes = append(s.Nodes, plainNode(n+1))
	}
	for i := range s.Nodes {
		if len(confs) > 0 {
			s.Facts = append(s.Facts, factsOf(&s.Nodes[i], folder, confs))
		}
	}
	for _, resource := range []string{"nodes", "pods", "daemonsets", "deployments", "replicasets", "services",
		"configmaps", "namespaces", "customresourcedefinitions"} {
		s.Sources = append(s.Sources, cluster.Source{Resource: resource, From: "live"})
	}
	return s
}

func plainNode(n int) corev1.Node {
	cidr := fmt.Sprintf("10.244.%d.0/24", n)
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n),
			Labels: map[string]string{"kubernetes.io/os": "linux"}},
		Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("198.18.0.%d", 10+n)}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.18.0", KubeletVersion: "v1.36.3",
				ContainerRuntimeVersion: "containerd://2.3.7", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

func factsOf(node *corev1.Node, folder string, confs []cluster.Conf) cluster.NodeFacts {
	facts := cluster.NodeFacts{Node: node.Name, Kernel: node.Status.NodeInfo.KernelVersion}
	facts.Links = []cluster.Link{{Name: "eth0", MTU: 1500,
		Addresses: []string{node.Status.Addresses[0].Address + "/24"}}}
	if folder != "" {
		facts.Folders = &cluster.Folders{Conf: folder, Source: "the runtime"}
	}
	for _, conf := range confs {
		if slices.Equal(conf.Subnets, []string{"node"}) {
			conf.Subnets = slices.Clone(node.Spec.PodCIDRs)
		}
		facts.Confs, facts.ConfFiles = append(facts.Confs, conf), append(facts.ConfFiles, conf.File)
	}
	return facts
}
