package cnitest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
)

var cutting = flag.String("cut", "", "NAME=FILE: make testdata/golden/NAME.json of a snapshot of a lab called golden")

// TestCut holds that what is in testdata/golden was cut, and with -cut cuts a snapshot down to what networks are about.
// A new one is made by
//
//	theseus-lab up --name golden --nodes 2 --network calico-typha --calico v3.28.5
//	KUBECONFIG=$(theseus-lab kubeconfig --name golden) \
//	  theseus snapshot --nodes --agent-image theseus.dev/agent:dev -o typha.json
//	go test ./internal/network/cnitest -run TestCut -cut calico-typha-v3.28.5=typha.json
//	theseus-lab down --name golden
func TestCut(t *testing.T) {
	if name, file, ok := strings.Cut(*cutting, "="); ok {
		_, after := cutFile(t, file)
		if err := os.WriteFile("testdata/golden/"+name+".json", append(after, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %d files", err, len(files))
	}
	for _, file := range files {
		if before, after := cutFile(t, file); !bytes.Equal(bytes.TrimSpace(before), after) {
			t.Errorf("%s is not as it would be cut today", file)
		}
	}
}

// cutFile is what a file has, and what is cut of it.
func cutFile(t *testing.T, file string) (before, after []byte) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := &cluster.Snapshot{}
	if err := json.Unmarshal(bytes.ReplaceAll(before, []byte("golden-node-"), []byte("node-")), snapshot); err != nil {
		t.Fatal(err)
	}
	cut(snapshot)
	if after, err = json.MarshalIndent(snapshot, "", " "); err != nil {
		t.Fatal(err)
	}
	return before, after
}

func cut(s *cluster.Snapshot) {
	s.UID, s.Theseus, s.TakenAt, s.Rights = "cluster-a", "lab", metav1.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), nil
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n corev1.Namespace) bool { return n.Name == "theseus-system" })
	s.ConfigMaps = slices.DeleteFunc(s.ConfigMaps, func(c corev1.ConfigMap) bool {
		return !slices.Contains([]string{"calico-config", "kube-flannel-cfg", "kube-proxy",
			"kubeadm-config", "weave-net"}, c.Name)
	})
	s.Other = slices.DeleteFunc(s.Other, func(o unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition" && !strings.HasSuffix(o.GroupVersionKind().Group,
			"projectcalico.org") || o.GetKind() == "IPAMBlock"
	})
	for i := range s.Nodes {
		n := &s.Nodes[i]
		info := n.Status.NodeInfo
		n.ObjectMeta = named(n.ObjectMeta)
		n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: n.Status.Conditions,
			NodeInfo: corev1.NodeSystemInfo{
				KernelVersion: info.KernelVersion, KubeletVersion: info.KubeletVersion,
				ContainerRuntimeVersion: info.ContainerRuntimeVersion, OperatingSystem: info.OperatingSystem,
				Architecture: info.Architecture,
			}}
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady && c.Type != corev1.NodeNetworkUnavailable
		})
		for j, c := range n.Status.Conditions {
			n.Status.Conditions[j] = corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
		}
	}
	for i := range s.Namespaces {
		s.Namespaces[i] = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespaces[i].Name}}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		ready := slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type != corev1.PodReady
		})
		for j, c := range ready {
			ready[j] = corev1.PodCondition{Type: c.Type, Status: c.Status}
		}
		p.ObjectMeta = named(p.ObjectMeta)
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
			ServiceAccountName: p.Spec.ServiceAccountName, NodeSelector: p.Spec.NodeSelector,
			Containers: containers(p.Spec.Containers, false)}
		p.Status = corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, Conditions: ready}
	}
	for i := range s.Services {
		v := &s.Services[i]
		v.ObjectMeta = metav1.ObjectMeta{Name: v.Name, Namespace: v.Namespace}
		v.Spec = corev1.ServiceSpec{ClusterIP: v.Spec.ClusterIP, Ports: v.Spec.Ports, Selector: v.Spec.Selector}
	}
	for i := range s.ConfigMaps {
		s.ConfigMaps[i].ObjectMeta = named(s.ConfigMaps[i].ObjectMeta)
	}
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		d.ObjectMeta, d.Spec.Template = named(d.ObjectMeta), template(d.Spec.Template)
		d.Status.ObservedGeneration = 0
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		d.ObjectMeta, d.Spec.Template = named(d.ObjectMeta), template(d.Spec.Template)
		d.Status.Conditions, d.Status.ObservedGeneration = nil, 0
	}
	for i := range s.ReplicaSets {
		r := &s.ReplicaSets[i]
		r.ObjectMeta, r.Spec.Template = named(r.ObjectMeta), corev1.PodTemplateSpec{}
		r.Status.ObservedGeneration = 0
	}
	for i := range s.Other {
		o := &s.Other[i]
		kept := named(metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), Labels: o.GetLabels(),
			Annotations: o.GetAnnotations()})
		if o.GetKind() == "CustomResourceDefinition" {
			o.Object = map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}
			kept.Annotations = nil
		}
		delete(o.Object, "metadata")
		o.SetName(kept.Name)
		o.SetNamespace(kept.Namespace)
		o.SetLabels(kept.Labels)
		o.SetAnnotations(kept.Annotations)
	}
	for i := range s.Facts {
		s.Facts[i].Host = nil
	}
	for i := range s.Sources {
		s.Sources[i].ResourceVersion = ""
	}
}

// named is what of an object's metadata people wrote, or a network.
func named(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations}
	for _, key := range []string{"kubectl.kubernetes.io/last-applied-configuration",
		"deprecated.daemonset.template.generation"} {
		delete(kept.Annotations, key)
	}
	for _, owner := range m.OwnerReferences {
		kept.OwnerReferences = append(kept.OwnerReferences, metav1.OwnerReference{APIVersion: owner.APIVersion,
			Kind: owner.Kind, Name: owner.Name, UID: "u", Controller: owner.Controller})
	}
	return kept
}

func template(of corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	s := of.Spec
	return corev1.PodTemplateSpec{ObjectMeta: named(of.ObjectMeta), Spec: corev1.PodSpec{
		HostNetwork: s.HostNetwork, ServiceAccountName: s.ServiceAccountName,
		NodeSelector: s.NodeSelector, Volumes: s.Volumes, InitContainers: containers(s.InitContainers, true),
		Containers: containers(s.Containers, true),
	}}
}

// containers are their names and images, and what they are told to do.
func containers(of []corev1.Container, whole bool) []corev1.Container {
	var kept []corev1.Container
	for _, c := range of {
		one := corev1.Container{Name: c.Name, Image: c.Image}
		if whole {
			one.Command, one.Args, one.Env = c.Command, c.Args, c.Env
		}
		kept = append(kept, one)
	}
	return kept
}
