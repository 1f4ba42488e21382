// Package felix checks the settings of Felix, Calico's agent.
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

// variable is an environment variable of calico-node that Felix reads.
type variable struct {
	subject   finding.Subject
	name      string
	parameter felix.Parameter // empty if there is none of that name
	value     string
	known     bool // false if the value is in an object that is not in the input
}

// setting is one field of a FelixConfiguration.
type setting struct {
	subject   finding.Subject
	parameter felix.Parameter
	value     any
}

// lacks returns what is missing to know Felix' settings; empty if neither the present network nor the target is Calico.
func lacks(pass *check.Pass) string {
	if pass.Change.To == "calico" && len(pass.Manifest) == 0 {
		return "the change names no manifest of calico (--manifest)"
	}
	if len(agents(pass)) == 0 {
		return ""
	}
	return pass.MissingCalico("felixconfigurations")
}

// table returns the parameters of the target's Calico, or else of the present one.
func table(pass *check.Pass) *felix.Table {
	version := ""
	for _, set := range agents(pass) { // those in the manifests come last
		version = cluster.ImageOf(cni.ImageOf(set.Spec.Template.Spec.Containers, "node")).Tag
	}
	return felix.For(version)
}

// agents returns the DaemonSets that run calico-node, in the cluster and in the target's manifests.
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

// variables returns Felix' variables of every agent.
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

// valueOf follows a reference to a ConfigMap in the cluster or in the manifests.
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

// settings returns the fields of every FelixConfiguration, in the cluster and in the manifests.
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
				found = append(found, setting{finding.Subject{Kind: "FelixConfiguration", Name: object.GetName()},
					parameter, spec[field]})
			}
		}
	}
	return found
}

// shown returns a value for people to read.
func shown(value any) string {
	if text, ok := felix.Text(value); ok {
		return strings.TrimSpace(text)
	}
	return "(a structure)"
}
