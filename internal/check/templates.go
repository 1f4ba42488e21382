package check

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/finding"
)

// Template is something that makes pods of a template.
type Template struct {
	Subject  finding.Subject
	Resource string // as kubectl takes it
	Spec     *corev1.PodSpec
	Pointer  string // where the spec of its pods is, as a JSON pointer
}

// Templates are those of the DaemonSets, Deployments, StatefulSets, CronJobs, and the ReplicaSets that no Deployment owns.
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
	return all
}
