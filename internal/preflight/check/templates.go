package check

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// Template is a pod template and the object that contains it.
type Template struct {
	Subject  finding.Subject
	Resource string // as kubectl takes it
	Spec     *corev1.PodSpec
	// Pointer is the JSON pointer to the spec of its pods; empty if it cannot be changed.
	Pointer string
}

// Templates returns the templates of DaemonSets, Deployments, StatefulSets and CronJobs, of ReplicaSets and unfinished
// Jobs without an owner, and of objects of other kinds that have such a template.
func Templates(s *cluster.Snapshot) []Template {
	var all []Template
	add := func(kind, resource string, o metav1.Object, spec *corev1.PodSpec) {
		subject := finding.Subject{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
		all = append(all, Template{subject, resource, spec, "/spec/template/spec"})
	}
	for i := range s.DaemonSets {
		add("DaemonSet", "daemonset", &s.DaemonSets[i], &s.DaemonSets[i].Spec.Template.Spec)
	}
	for i := range s.Deployments {
		add("Deployment", "deployment", &s.Deployments[i], &s.Deployments[i].Spec.Template.Spec)
	}
	for i := range s.StatefulSets {
		add("StatefulSet", "statefulset", &s.StatefulSets[i], &s.StatefulSets[i].Spec.Template.Spec)
	}
	for i := range s.ReplicaSets {
		if set := &s.ReplicaSets[i]; metav1.GetControllerOf(set) == nil {
			add("ReplicaSet", "replicaset", set, &set.Spec.Template.Spec)
		}
	}
	for _, object := range s.OtherOf("batch", "CronJob") {
		var job batchv1.CronJob
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &job) == nil {
			add("CronJob", "cronjob", &job, &job.Spec.JobTemplate.Spec.Template.Spec)
			all[len(all)-1].Pointer = "/spec/jobTemplate/spec/template/spec"
		}
	}
	for i := range s.Jobs {
		if job := &s.Jobs[i]; metav1.GetControllerOf(job) == nil && job.Status.CompletionTime == nil {
			add("Job", "job", job, &job.Spec.Template.Spec)
			all[len(all)-1].Pointer = ""
		}
	}
	for i := range s.Other {
		object := &s.Other[i]
		template, found, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
		fields, ok := template.(map[string]any)
		var spec corev1.PodSpec
		if !found || err != nil || !ok || fields["containers"] == nil || metav1.GetControllerOf(object) != nil ||
			runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec) != nil {
			continue
		}
		kind := object.GroupVersionKind()
		add(kind.Kind, strings.ToLower(kind.Kind), object, &spec)
		if kind.Group != "" {
			all[len(all)-1].Resource += "." + kind.Group
		}
	}
	return all
}
