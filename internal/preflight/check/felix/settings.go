// Package felix checks the settings of Felix, the agent of Calico.
package felix

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/felix"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// variable is one environment variable of calico-node that is Felix' affair.
type variable struct {
	subject   finding.Subject
	name      string
	parameter felix.Parameter // empty when there is none of that name
	value     string
	known     bool // false when the value is in an object that is not in the input
}

// setting is one field of a FelixConfiguration.
type setting struct {
	subject   finding.Subject
	parameter felix.Parameter
	value     any
}

// lacks says what is missing to know Felix' settings; empty when there is no Calico, now or to come.
func lacks(pass *check.Pass) string {
	if pass.Change.To == "calico" && len(pass.Manifest) == 0 {
		return "how calico will be installed is not known: name its manifests (--manifest)"
	}
	if len(agents(pass)) == 0 {
		return ""
	}
	return pass.MissingCalico("felixconfigurations")
}

// table is that of the Calico which the check is about: the one to come, or the one in place.
func table(pass *check.Pass) *felix.Table {
	version := ""
	for _, set := range agents(pass) { // those of the manifests come last
		version = cluster.ImageOf(cni.ImageOf(set.Spec.Template.Spec.Containers, "node")).Tag
	}
	return felix.For(version)
}

// agents are the DaemonSets that run calico-node, in the cluster and in the manifests of the network to come.
func agents(pass *check.Pass) []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	add := func(set *appsv1.DaemonSet) {
		for _, container := range set.Spec.Template.Spec.Containers {
			if container.Name == "calico-node" {
				found = append(found, set)
			}
		}
	}
	for i := range pass.Snapshot.DaemonSets {
		add(&pass.Snapshot.DaemonSets[i])
	}
	for i := range pass.Manifest {
		var set appsv1.DaemonSet
		if pass.Manifest[i].GetKind() == "DaemonSet" &&
			runtime.DefaultUnstructuredConverter.FromUnstructured(pass.Manifest[i].Object, &set) == nil {
			add(&set)
		}
	}
	return found
}

// variables are those of every agent.
func variables(pass *check.Pass) []variable {
	var found []variable
	for _, set := range agents(pass) {
		subject := finding.Subject{Kind: "DaemonSet", Namespace: set.Namespace, Name: set.Name}
		for _, container := range set.Spec.Template.Spec.Containers {
			if container.Name != "calico-node" {
				continue
			}
			for _, env := range container.Env {
				parameter, _, ours := table(pass).ByVariable(env.Name)
				if !ours {
					continue
				}
				value, known := valueOf(pass, set.Namespace, env)
				found = append(found, variable{subject, env.Name, parameter, value, known})
			}
		}
	}
	return found
}

// valueOf follows a reference to a ConfigMap of the cluster or of the manifests.
func valueOf(pass *check.Pass, namespace string, env corev1.EnvVar) (string, bool) {
	if env.ValueFrom == nil {
		return env.Value, true
	}
	ref := env.ValueFrom.ConfigMapKeyRef
	if ref == nil {
		return "", false
	}
	for _, object := range pass.Manifest {
		if object.GetKind() == "ConfigMap" && object.GetName() == ref.Name {
			if value, ok, _ := unstructured.NestedString(object.Object, "data", ref.Key); ok {
				return value, true
			}
		}
	}
	if stored := pass.Snapshot.ConfigMap(namespace, ref.Name); stored != nil {
		value, ok := stored.Data[ref.Key]
		return value, ok
	}
	return "", false
}

// settings are the fields of every FelixConfiguration, of the cluster and of the manifests.
func settings(pass *check.Pass) []setting {
	objects := pass.Snapshot.Calico("FelixConfiguration")
	for _, object := range pass.Manifest {
		if object.GetKind() == "FelixConfiguration" {
			objects = append(objects, object)
		}
	}
	var found []setting
	for _, object := range objects {
		spec, _, _ := unstructured.NestedMap(object.Object, "spec")
		for _, field := range slices.Sorted(maps.Keys(spec)) {
			if parameter, ok := table(pass).ByField(field); ok {
				found = append(found, setting{finding.Subject{Kind: "FelixConfiguration", Name: object.GetName()}, parameter, spec[field]})
			}
		}
	}
	return found
}

// shown is a value as people read it.
func shown(value any) string {
	if text, ok := felix.Text(value); ok {
		return strings.TrimSpace(text)
	}
	return "(a structure)"
}
