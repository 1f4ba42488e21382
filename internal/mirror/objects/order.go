package objects

import (
	"maps"
	"slices"
)

// phases give kinds their place where no reference does. What is not named comes in between, at phaseOther.
func phases() map[string]int {
	return map[string]int{
		"Namespace": 0,
		"CustomResourceDefinition.apiextensions.k8s.io": 1,
		"StorageClass.storage.k8s.io":                   2,
		"PriorityClass.scheduling.k8s.io":               2,
		"RuntimeClass.node.k8s.io":                      2,
		"IngressClass.networking.k8s.io":                2,
		"GatewayClass.gateway.networking.k8s.io":        2,
		"ServiceAccount":                                2,
		"Secret":                                        2,
		"ConfigMap":                                     2,
		"LimitRange":                                    2,
		"ResourceQuota":                                 2,
		"NetworkPolicy.networking.k8s.io":               2, // denied stays denied from the first pod on
		"PodDisruptionBudget.policy":                    2,
		"Role.rbac.authorization.k8s.io":                2,
		"ClusterRole.rbac.authorization.k8s.io":         2,
		"RoleBinding.rbac.authorization.k8s.io":         3,
		"ClusterRoleBinding.rbac.authorization.k8s.io":  3,
		"PersistentVolumeClaim":                         3,
		"Service":                                       3,
		"Endpoints":                                     4,
		"EndpointSlice.discovery.k8s.io":                4,
		"Pod":                                           6,
		"Deployment.apps":                               6,
		"StatefulSet.apps":                              6,
		"DaemonSet.apps":                                6,
		"ReplicaSet.apps":                               6,
		"ReplicationController":                         6,
		"Job.batch":                                     6,
		"CronJob.batch":                                 6,
		"HorizontalPodAutoscaler.autoscaling":           7,
		"Ingress.networking.k8s.io":                     7,
		"APIService.apiregistration.k8s.io":             phaseLast,
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io": phaseLast + 1,
		"MutatingWebhookConfiguration.admissionregistration.k8s.io":   phaseLast + 1,
	}
}

// phaseOther is where kinds come that nothing is known about: after what pods need, before the pods, since
// many of them configure what pods get.
const phaseOther = 5

// phaseLast is where kinds come that have a say in everything that is written after them. No chain of references
// is as long.
const phaseLast = 1 << 30

// waves sorts objects so that everything comes after what it refers to. Objects of one wave do not need each
// other. Where references make a circle, the phases of the kinds decide.
func waves(objects []Object) [][]Object {
	in := newIndex(objects)
	phase := phases()
	levels := make(map[Key]int, len(objects))
	entered := map[Key]bool{}
	rank := func(key Key) int {
		if p, ok := phase[key.GroupKind().String()]; ok {
			return p
		}
		return phaseOther
	}
	var level func(key Key) int
	level = func(key Key) int {
		if level, done := levels[key]; done {
			return level
		}
		if entered[key] {
			return -1 // a circle
		}
		entered[key] = true
		deepest := rank(key)
		for _, ref := range referencesOf(in.exact[key]) {
			for _, other := range in.find(ref) {
				if other != key && rank(other) < phaseLast {
					deepest = max(deepest, level(other)+1)
				}
			}
		}
		levels[key] = deepest
		return deepest
	}
	keys := make([]Key, 0, len(objects))
	for _, object := range objects {
		keys = append(keys, KeyOf(object))
	}
	// From the earliest kinds on, so that a circle is cut at the reference that leads back.
	slices.SortFunc(keys, func(a, b Key) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return compareKeys(a, b)
	})
	byLevel := map[int][]Object{}
	for _, key := range keys {
		at := level(key)
		byLevel[at] = append(byLevel[at], in.exact[key])
	}
	var out [][]Object
	for _, at := range slices.Sorted(maps.Keys(byLevel)) {
		out = append(out, byLevel[at])
	}
	return out
}
