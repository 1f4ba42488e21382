package objects

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Clean returns the copy of an object that another cluster can be given: what users own of it, without what
// belongs to the cluster that it comes from. Empty maps and lists keep their place: an empty selector selects
// everything, and `egress: [{}]` allows everything.
func Clean(object Object) Object {
	copied := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	delete(copied.Object, "status")
	if meta, ok := copied.Object["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
			"deletionGracePeriodSeconds", "selfLink", "managedFields", "finalizers", "generateName"} {
			delete(meta, name)
		}
		copied.Object["metadata"] = meta
	}
	copied = copied.DeepCopy()
	explicit := owned(copied, writersOf(object))
	stripAnnotations(copied)
	if strip := strips()[kindOf(copied)]; strip != nil {
		strip(copied, explicit)
	}
	for _, name := range []string{"labels", "annotations", "ownerReferences"} {
		if isEmpty(at(copied, "metadata", name)) {
			remove(copied, "metadata", name)
		}
	}
	return copied
}

func kindOf(object Object) string { return KeyOf(object).GroupKind().String() }

func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil
}

// serverAnnotations are written by the cluster, or hold a copy of the object that is the original's.
func serverAnnotations() []string {
	return []string{
		"kubectl.kubernetes.io/last-applied-configuration",
		"deployment.kubernetes.io/revision", "deprecated.deployment.rollback.to",
		"deprecated.daemonset.template.generation", "control-plane.alpha.kubernetes.io/leader",
		"endpoints.kubernetes.io/last-change-trigger-time",
		"batch.kubernetes.io/job-tracking", "batch.kubernetes.io/cronjob-scheduled-timestamp",
		"autoscaling.alpha.kubernetes.io/conditions", "autoscaling.alpha.kubernetes.io/current-metrics",
		"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
		"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
		"volume.beta.kubernetes.io/storage-provisioner", SumAnnotation, DecideAnnotation,
	}
}

func stripAnnotations(object Object) {
	annotations := object.GetAnnotations()
	for _, name := range serverAnnotations() {
		delete(annotations, name)
	}
	object.SetAnnotations(annotations)
}

// strips is the table per kind. explicit says that the managers of fields told what users own: then a field that the
// server may have filled in is here because a user set it.
func strips() map[string]func(object Object, explicit bool) {
	return map[string]func(Object, bool){
		"Service":               stripService,
		"Secret":                stripSecret,
		"ServiceAccount":        stripServiceAccount,
		"Namespace":             stripNamespace,
		"PersistentVolumeClaim": stripClaim,
		"Pod":                   func(object Object, _ bool) { remove(object, "spec", "nodeName") },
		"Job.batch":             stripJob,
		"ClusterRole.rbac.authorization.k8s.io": func(object Object, _ bool) {
			if at(object, "aggregationRule") != nil {
				remove(object, "rules")
			}
		},
		"CustomResourceDefinition.apiextensions.k8s.io": func(object Object, _ bool) {
			// Injected by the original's own authority, and injected again.
			if _, injected := object.GetAnnotations()["cert-manager.io/inject-ca-from"]; injected {
				remove(object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
			}
		},
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io": stripWebhooks,
		"MutatingWebhookConfiguration.admissionregistration.k8s.io":   stripWebhooks,
	}
}

// stripService takes the addresses and ports that the original gave. "None" is no address but a choice.
func stripService(object Object, explicit bool) {
	if text(object, "spec", "clusterIP") != "None" {
		remove(object, "spec", "clusterIP")
		remove(object, "spec", "clusterIPs")
	}
	if explicit {
		return
	}
	remove(object, "spec", "healthCheckNodePort")
	if text(object, "spec", "type") != "ExternalName" { // a cluster of one family refuses the other
		remove(object, "spec", "ipFamilies")
		remove(object, "spec", "ipFamilyPolicy")
	}
	ports, _ := at(object, "spec", "ports").([]any)
	for _, port := range ports {
		if fields, ok := port.(map[string]any); ok {
			delete(fields, "nodePort")
		}
	}
}

// stripSecret empties the tokens of service accounts, which the mirror signs again.
func stripSecret(object Object, _ bool) {
	if text(object, "type") != "kubernetes.io/service-account-token" {
		return
	}
	for _, name := range []string{"token", "ca.crt", "namespace"} {
		remove(object, "data", name)
	}
	remove(object, "metadata", "annotations", "kubernetes.io/service-account.uid")
}

// stripServiceAccount takes the tokens' secrets away that controllers once made.
func stripServiceAccount(object Object, _ bool) {
	secrets, _ := at(object, "secrets").([]any)
	secrets = slices.DeleteFunc(secrets, func(one any) bool {
		fields, _ := one.(map[string]any)
		name, _ := fields["name"].(string)
		return strings.HasPrefix(name, object.GetName()+"-token-") ||
			strings.HasPrefix(name, object.GetName()+"-dockercfg-")
	})
	if len(secrets) > 0 {
		set(object, secrets, "secrets")
	} else {
		remove(object, "secrets")
	}
}

func stripNamespace(object Object, _ bool) {
	remove(object, "spec")
	remove(object, "metadata", "labels", "kubernetes.io/metadata.name")
}

// stripClaim cuts a claim from the volume that it is bound to.
func stripClaim(object Object, explicit bool) {
	remove(object, "spec", "volumeName")
	if !explicit && text(object, "spec", "volumeMode") == "Filesystem" {
		remove(object, "spec", "volumeMode")
	}
}

// stripJob takes the labels by which the original's controller finds the pods of a Job.
func stripJob(object Object, _ bool) {
	if manual, _ := at(object, "spec", "manualSelector").(bool); manual {
		return
	}
	remove(object, "spec", "selector")
	for _, label := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid",
		"batch.kubernetes.io/job-name"} {
		remove(object, "spec", "template", "metadata", "labels", label)
		remove(object, "metadata", "labels", label)
	}
}

// stripWebhooks takes injected authorities away: those of the original sign nothing on the mirror.
func stripWebhooks(object Object, _ bool) {
	annotations := object.GetAnnotations()
	if annotations["cert-manager.io/inject-ca-from"] == "" &&
		annotations["cert-manager.io/inject-ca-from-secret"] == "" {
		return
	}
	hooks, _ := at(object, "webhooks").([]any)
	for _, hook := range hooks {
		if fields, ok := hook.(map[string]any); ok {
			if config, ok := fields["clientConfig"].(map[string]any); ok {
				delete(config, "caBundle")
			}
		}
	}
}
