package rehearsal

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// HeldPrefix begins the finalizers of the copy's pods. No program removes them, except the removal of the copy.
const HeldPrefix = "rehearsal.theseus.dev/"

// heldFor is how long a finalizer must have kept an ended pod: within seconds, what removes it still may.
const heldFor = time.Minute

// holding finds finalizers that keep pods of a workload although all their containers have ended, and their time to end
// is over: what should remove them does not. Others are not told from those that a program removes at once, which the
// copy does not have.
func holding(s *cluster.Snapshot) (held map[string][]string, finalized map[string]bool) {
	held, finalized = map[string][]string{}, map[string]bool{}
	owner := s.Owners()
	for i := range s.Pods {
		pod := &s.Pods[i]
		by := owner(pod)
		name := by.Kind + " " + by.Namespace + "/" + by.Name
		for _, finalizer := range foreign(pod.Finalizers) {
			finalized[name] = true
			if pod.DeletionTimestamp != nil && over(pod) &&
				s.TakenAt.Sub(pod.DeletionTimestamp.Time) > heldFor {
				_, last, _ := strings.Cut(finalizer, "/")
				held[name] = append(held[name], HeldPrefix+last)
			}
		}
	}
	for name, all := range held {
		slices.Sort(all)
		held[name] = slices.Compact(all)
	}
	return held, finalized
}

// foreign are the finalizers that Kubernetes does not remove itself.
func foreign(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(finalizer string) bool {
		domain, name, qualified := strings.Cut(finalizer, "/")
		return !qualified || name == "" || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") ||
			strings.HasSuffix(domain, ".k8s.io")
	})
}

// over reports whether no container of a pod runs.
func over(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return len(pod.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil })
}

// hold gives the pods of a workload the finalizers that keep those of the original.
func (m *maker) hold(workload string, template *metav1.ObjectMeta) {
	has := m.finalized[workload] || len(foreign(template.Finalizers)) > 0
	template.Finalizers = m.held[workload]
	if has && len(template.Finalizers) == 0 {
		m.notes.finalizers++
	}
}

// slept matches a command that sleeps before all else.
var slept = regexp.MustCompile(`^(?:/\S+/)?sleep (infinity|[0-9]{1,9})(?:\.[0-9]*)?([smhd]?)(?:$|\s*[;&])`)

// sleeps is how long a hook that ends a container sleeps, at most for the grace period; nil if that is not known.
func sleeps(hook *corev1.LifecycleHandler, grace int64) *corev1.SleepAction {
	switch {
	case hook == nil:
		return nil
	case hook.Sleep != nil:
		return hook.Sleep
	case hook.Exec == nil:
		return nil
	}
	words := hook.Exec.Command
	if n := len(words); n == 3 && strings.HasSuffix(words[0], "sh") && words[1] == "-c" {
		words = words[2:]
	}
	found := slept.FindStringSubmatch(strings.TrimSpace(strings.Join(words, " ")))
	if found == nil || grace < 1 {
		return nil
	}
	seconds := grace
	if n, err := strconv.ParseInt(found[1], 10, 64); err == nil {
		seconds = min(grace, n*map[string]int64{"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]])
	}
	if seconds < 1 {
		return nil
	}
	return &corev1.SleepAction{Seconds: seconds}
}
