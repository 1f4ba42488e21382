package rehearsal

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Quota is a ResourceQuota of the copy.
type Quota struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Bounds    []Bound `json:"bounds"`
	// Unlike are the bounds with which the same further pods as in the original cannot fit.
	Unlike []string `json:"unlike,omitempty"`

	original corev1.ResourceQuota
	object   *unstructured.Unstructured
}

// Bound is how much of a resource a quota allows, and how much of it pods use. Those of the copy are empty until Bound
// has counted its pods.
type Bound struct {
	Resource string `json:"resource"`
	Used     string `json:"used"`
	Hard     string `json:"hard"`
	CopyUsed string `json:"copyUsed,omitempty"`
	CopyHard string `json:"copyHard,omitempty"`
}

// bounding are the kinds that bound what pods of a namespace may use, each with its resource.
func bounding() map[string]string {
	return map[string]string{"ResourceQuota": "resourcequotas", "LimitRange": "limitranges"}
}

// defaults are what the LimitRanges of a namespace give containers that do not say it themselves.
type defaults struct{ requests, limits corev1.ResourceList }

// bounded finds the namespaces with quotas and LimitRanges. It comes before the workloads: their stand-ins get the
// requests and limits that these demand.
func (m *maker) bounded() {
	for _, kind := range slices.Sorted(maps.Keys(bounding())) {
		if ok, why := m.original.Has(bounding()[kind]); !ok {
			m.Unbounded = append(m.Unbounded, fmt.Sprintf("%ss (%s)", kind, why))
		}
	}
	each(m, "ResourceQuota", func(one *corev1.ResourceQuota) {
		m.quota(one)
		if m.defaults[one.Namespace] == nil {
			m.defaults[one.Namespace] = &defaults{corev1.ResourceList{}, corev1.ResourceList{}}
		}
	})
	each(m, "LimitRange", func(one *corev1.LimitRange) {
		m.limits = append(m.limits, one)
		given := cmp.Or(m.defaults[one.Namespace], &defaults{corev1.ResourceList{}, corev1.ResourceList{}})
		m.defaults[one.Namespace] = given
		for i := range one.Spec.Limits {
			item := &one.Spec.Limits[i]
			complete(item)
			if item.Type == corev1.LimitTypeContainer {
				fill(given.requests, item.DefaultRequest)
				fill(given.limits, item.Default)
			}
		}
	})
	slices.SortFunc(m.Quotas, func(a, b Quota) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// each decodes the objects of a kind in namespaces that are copied.
func each[T any](m *maker, kind string, do func(*T)) {
	for _, object := range m.original.OtherOf("", kind) {
		if !m.copied(object.GetNamespace()) || object.GetDeletionTimestamp() != nil {
			continue
		}
		one := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, one); err != nil {
			m.leave(kind, object.GetNamespace(), object.GetName(), "it cannot be read")
			m.Unbounded = append(m.Unbounded, name(&object)+" (it cannot be read)")
			continue
		}
		do(one)
	}
}

// complete enters what the API server does where an item of a LimitRange does not say it.
func complete(item *corev1.LimitRangeItem) {
	if item.Type != corev1.LimitTypeContainer {
		return
	}
	for _, list := range []*corev1.ResourceList{&item.Default, &item.DefaultRequest} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
	}
	fill(item.Default, item.Max)
	fill(item.DefaultRequest, item.Default)
	fill(item.DefaultRequest, item.Min)
}

// fill adds to a list what it lacks.
func fill(list, from corev1.ResourceList) {
	for name, count := range from {
		if _, has := list[name]; !has {
			list[name] = count
		}
	}
}

// resources are what the stand-in of a container asks for, and what it may use. Limits count only in a namespace with
// quotas or LimitRanges; there they are the original's, and what the API server and LimitRanges enter when a pod is
// made is entered here.
func (m *maker) resources(namespace string, old corev1.ResourceRequirements) corev1.ResourceRequirements {
	requests, limits := m.requests(old.Requests), corev1.ResourceList{}
	given := m.defaults[namespace]
	if given == nil {
		if len(old.Limits) > 0 {
			m.notes.limits++
		}
		return required(requests, nil)
	}
	for _, name := range counted() {
		limit, limited := old.Limits[name]
		if _, asked := requests[name]; !asked && limited {
			requests[name] = limit
		} else if request, has := given.requests[name]; !asked && has {
			requests[name] = request
		}
		if !limited {
			limit, limited = given.limits[name]
		}
		if limited {
			limits[name] = limit
		}
	}
	return required(requests, limits)
}

func required(requests, limits corev1.ResourceList) (made corev1.ResourceRequirements) {
	if len(requests) > 0 {
		made.Requests = requests
	}
	if len(limits) > 0 {
		made.Limits = limits
	}
	return made
}

// counted are the resources of nodes that stand-ins ask for.
func counted() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// limitRanges copies LimitRanges, after shrink has decided on the requests: where requests are smaller than in the
// original, the least and the default request are smaller by the same factor. Limits are as in the original.
func (m *maker) limitRanges() {
	for _, one := range m.limits {
		for i := range one.Spec.Limits {
			item := &one.Spec.Limits[i]
			if item.Type == corev1.LimitTypePersistentVolumeClaim {
				continue
			}
			for _, list := range []corev1.ResourceList{item.Min, item.Max, item.Default, item.DefaultRequest,
				item.MaxLimitRequestRatio} {
				maps.DeleteFunc(list, func(name corev1.ResourceName, _ resource.Quantity) bool {
					if slices.Contains(counted(), name) {
						return false
					}
					m.notes.bounds[string(name)] = true // stand-ins do not ask for it
					return true
				})
			}
			for name, factor := range m.factor {
				if factor == 1 {
					continue
				}
				if least, has := item.Min[name]; has { // not rounded up, as requests are
					item.Min[name] = quantityOf(name, int64(float64(unitsOf(name, least))*factor))
				}
				if request, has := item.DefaultRequest[name]; has {
					item.DefaultRequest[name] = resource.MustParse(times(name, request, factor))
				}
				if _, has := item.MaxLimitRequestRatio[name]; has {
					delete(item.MaxLimitRequestRatio, name)
					m.notes.ratios++
				}
			}
		}
		m.add(encode(one, corev1.SchemeGroupVersion.WithKind("LimitRange")))
	}
}

// quota notes a ResourceQuota of which the copy gets the bounds of pods, processors and memory.
func (m *maker) quota(one *corev1.ResourceQuota) {
	for _, term := range terms(&one.Spec) {
		switch term.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
			corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopePriorityClass:
		default:
			m.leave("ResourceQuota", one.Namespace, one.Name,
				"no stand-in is in its scope "+string(term.ScopeName))
			return
		}
	}
	made := Quota{Namespace: one.Namespace, Name: one.Name, original: *one,
		object: m.clean(encode(&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: one.Name, Namespace: one.Namespace, Labels: one.Labels},
			Spec:       corev1.ResourceQuotaSpec{Scopes: one.Spec.Scopes, ScopeSelector: one.Spec.ScopeSelector},
		}, corev1.SchemeGroupVersion.WithKind("ResourceQuota")))}
	var use map[corev1.ResourceName]int64
	for _, name := range slices.Sorted(maps.Keys(one.Spec.Hard)) {
		hard := one.Spec.Hard[name]
		if _, known := uses(&corev1.Pod{})[name]; !known {
			m.notes.bounds[string(name)] = true
			continue
		}
		used, known := one.Status.Used[name]
		if !known { // files that no API server wrote: what the pods use
			if use == nil {
				use, _ = inQuota(m.original, one)
			}
			used = quantityOf(name, use[name])
		}
		made.Bounds = append(made.Bounds, Bound{Resource: string(name), Used: used.String(), Hard: hard.String()})
	}
	if len(made.Bounds) == 0 {
		m.leave("ResourceQuota", one.Namespace, one.Name, "it bounds neither pods nor what they use")
		return
	}
	m.Quotas = append(m.Quotas, made)
}

// terms are the scopes of a quota.
func terms(spec *corev1.ResourceQuotaSpec) (all []corev1.ScopedResourceSelectorRequirement) {
	for _, scope := range spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope,
			Operator: corev1.ScopeSelectorOpExists})
	}
	if spec.ScopeSelector != nil {
		all = append(all, spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// operators are the operators of scopes as those of labels.
func operators() map[corev1.ScopeSelectorOperator]selection.Operator {
	return map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
}

// counts reports whether a pod with such uses counts in a quota.
func counts(quota *corev1.ResourceQuota, pod *corev1.Pod, use map[corev1.ResourceName]int64) bool {
	if pod.Namespace != quota.Namespace || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed {
		return false
	}
	bestEffort := use[corev1.ResourceRequestsCPU]+use[corev1.ResourceRequestsMemory]+
		use[corev1.ResourceLimitsCPU]+use[corev1.ResourceLimitsMemory] == 0
	for _, term := range terms(&quota.Spec) {
		in := true
		switch term.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort:
			in = bestEffort
		case corev1.ResourceQuotaScopeNotBestEffort:
			in = !bestEffort
		case corev1.ResourceQuotaScopeNotTerminating:
			in = pod.Spec.ActiveDeadlineSeconds == nil
		case corev1.ResourceQuotaScopePriorityClass:
			asked, err := labels.NewRequirement("class", operators()[term.Operator], term.Values)
			set := labels.Set{}
			if pod.Spec.PriorityClassName != "" {
				set["class"] = pod.Spec.PriorityClassName
			}
			in = err == nil && asked.Matches(set)
		}
		if !in {
			return false
		}
	}
	return true
}

// uses are what a pod uses of the resources of quotas: processors in thousandths, memory in bytes.
func uses(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	cpu, memory := requests.Cpu().MilliValue(), requests.Memory().Value()
	return map[corev1.ResourceName]int64{corev1.ResourcePods: 1, "count/pods": 1,
		corev1.ResourceCPU: cpu, corev1.ResourceRequestsCPU: cpu,
		corev1.ResourceMemory: memory, corev1.ResourceRequestsMemory: memory,
		corev1.ResourceLimitsCPU: limits.Cpu().MilliValue(), corev1.ResourceLimitsMemory: limits.Memory().Value()}
}

// inQuota is what the pods in a quota use, and the most that one pod of each workload does.
func inQuota(s *cluster.Snapshot, quota *corev1.ResourceQuota) (all map[corev1.ResourceName]int64,
	one map[string]map[corev1.ResourceName]int64) {
	all, one = map[corev1.ResourceName]int64{}, map[string]map[corev1.ResourceName]int64{}
	owner := s.Owners()
	for i := range s.Pods {
		pod := &s.Pods[i]
		use := uses(pod)
		if !counts(quota, pod, use) {
			continue
		}
		by := owner(pod)
		name := by.Kind + " " + by.Namespace + "/" + by.Name
		if one[name] == nil {
			one[name] = map[corev1.ResourceName]int64{}
		}
		for resource, n := range use {
			all[resource] += n
			one[name][resource] = max(one[name][resource], n)
		}
	}
	return all, one
}

// inMilli reports whether a resource is counted in thousandths.
func inMilli(name corev1.ResourceName) bool { return strings.HasSuffix(string(name), "cpu") }

// unitsOf is a quantity in the units of uses.
func unitsOf(name corev1.ResourceName, count resource.Quantity) int64 {
	if inMilli(name) {
		return count.MilliValue()
	}
	return count.Value()
}

// quantityOf is the quantity of units.
func quantityOf(name corev1.ResourceName, n int64) resource.Quantity {
	switch {
	case inMilli(name):
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	case strings.HasSuffix(string(name), "memory"):
		return *resource.NewQuantity(n, resource.BinarySI)
	}
	return *resource.NewQuantity(n, resource.DecimalSI)
}

// surge is how many pods a rolling change of a Deployment adds at most, if it has so many.
func surge(deployment *appsv1.Deployment, replicas int32) int64 {
	if deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return 0
	}
	most := intstr.FromString("25%")
	if rolling := deployment.Spec.Strategy.RollingUpdate; rolling != nil && rolling.MaxSurge != nil {
		most = *rolling.MaxSurge
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&most, int(replicas), true)
	if err != nil {
		return 0
	}
	return int64(n)
}

// surges are the numbers of pods that rolling changes of Deployments add, in the original and in the copy.
func (c *Copy) surges(original *cluster.Snapshot) map[string][2]int64 {
	all := map[string][2]int64{}
	for i := range original.Deployments {
		one := &original.Deployments[i]
		for _, w := range c.Workloads {
			if w.Kind == "Deployment" && w.Namespace == one.Namespace && w.Name == one.Name {
				all["Deployment "+w.Namespace+"/"+w.Name] = [2]int64{surge(one, w.Original), surge(one, w.Copy)}
			}
		}
	}
	return all
}

// Bound decides on the bounds of the copy's quotas. now is the scratch cluster with all pods of the copy. The copy may
// use what its pods use, and has room for more in proportion, such that the same further pods fit as in the original:
// one of each workload, and those that a rolling change of each Deployment adds.
func (c *Copy) Bound(original, now *cluster.Snapshot) {
	surges := c.surges(original)
	for i := range c.Quotas {
		quota := &c.Quotas[i]
		quota.Unlike = nil
		_, before := inQuota(original, &quota.original)
		used, after := inQuota(now, &quota.original)
		hard := map[string]any{}
		for j := range quota.Bounds {
			bound := &quota.Bounds[j]
			name := corev1.ResourceName(bound.Resource)
			var further []pods
			for workload := range after {
				if before[workload] == nil {
					continue
				}
				one := pods{before[workload][name], after[workload][name]}
				further = append(further, one)
				if n := surges[workload]; min(n[0], n[1]) > 0 {
					further = append(further, pods{n[0] * one.original, n[1] * one.copy})
				}
			}
			had := unitsOf(name, resource.MustParse(bound.Used))
			share := c.Share
			if had > 0 {
				share = float64(used[name]) / float64(had)
			}
			more, alike := room(unitsOf(name, resource.MustParse(bound.Hard))-had, share, further)
			if !alike {
				quota.Unlike = append(quota.Unlike, fmt.Sprintf("ResourceQuota %s/%s: %s: no bound lets the same "+
					"further pods in", quota.Namespace, quota.Name, name))
			}
			in, most := quantityOf(name, used[name]), quantityOf(name, max(0, used[name]+more))
			bound.CopyUsed, bound.CopyHard = in.String(), most.String()
			hard[bound.Resource] = bound.CopyHard
		}
		_ = unstructured.SetNestedMap(quota.object.Object, hard, "spec", "hard")
	}
}

// pods are what some further pods use, in the original and in the copy.
type pods struct{ original, copy int64 }

// room is the room that a quota has in the copy, if it has so much in the original, or is over its bound by so much. It
// is in proportion, and the same further pods fit. If no room does that, it is one in which all fit that do in the
// original, and false.
func room(original int64, share float64, further []pods) (int64, bool) {
	least, most, alike := int64(0), int64(math.MaxInt64), true
	if original < 0 {
		least, most = math.MinInt64, -1
	}
	for _, one := range further {
		switch fits := one.original == 0 || one.original <= original; { // a pod that uses nothing needs no room
		case one.copy == 0:
			alike = alike && fits
		case fits:
			least = max(least, one.copy)
		default:
			most = min(most, one.copy-1)
		}
	}
	if least > most {
		return least, false
	}
	return min(max(int64(math.Floor(float64(original)*share)), least), most), alike
}

// Bounding are the ResourceQuotas of a copy; they have bounds once Bound has been called.
func (c *Copy) Bounding() (all []*unstructured.Unstructured) {
	for i := range c.Quotas {
		all = append(all, c.Quotas[i].object)
	}
	return all
}

// Unlike are the bounds of quotas that are not alike in the copy, each with the reason.
func (c *Copy) Unlike() (all []string) {
	for i := range c.Quotas {
		all = append(all, c.Quotas[i].Unlike...)
	}
	return all
}
