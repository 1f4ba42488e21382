package run

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// said keeps what a person must not miss.
type said struct {
	View
	lines []string
}

func (s *said) Say(text string) { s.lines = append(s.lines, text) }

// TestEndsBenchmarks: a run that has the lock removes the pods of a benchmark before it writes anything of its own, and
// does not begin next to them if it cannot.
func TestEndsBenchmarks(t *testing.T) {
	const pods = "/api/v1/namespaces/" + v1alpha1.Namespace + "/pods"
	for name, may := range map[string]bool{"removed": true, "not removed": false} {
		s, client := newStore(t)
		s.add(t, pods+"/theseus-bench-client-1", &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "theseus-bench-client-1",
				Labels: map[string]string{manifest.LabelBench: manifest.BenchClient}}})
		s.add(t, pods+"/theirs", &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
		s.refuse = func(method, at string) (int, string) {
			if method == http.MethodPost && strings.HasSuffix(at, "/migrations") ||
				method == http.MethodDelete && !may {
				return http.StatusUnprocessableEntity, "not here"
			}
			return 0, ""
		}
		view := &said{}
		r := &Run{Client: client, Plan: guardPlan(t), Dir: t.TempDir(), Begins: true, View: view}
		_, err := r.Execute(t.Context())
		wrote := s.wrote("")
		removed := slices.Index(wrote, "DELETE "+pods+"/theseus-bench-client-1")
		began := slices.IndexFunc(wrote, func(one string) bool { return strings.HasPrefix(one, "POST "+ours) })
		switch {
		case err == nil || removed < 0 || slices.Contains(wrote, "DELETE "+pods+"/theirs"):
			t.Errorf("%s: %v; it wrote %q", name, err, wrote)
		case may && (began < removed || len(view.lines) != 1 ||
			view.lines[0] != "removed 1 pod of a benchmark that did not end"):
			t.Errorf("it began at %d and removed at %d: %q; it said %q", began, removed, wrote, view.lines)
		case !may && (began >= 0 || !strings.Contains(engine.HintOf(err), "delete pods,services -l theseus.dev/bench")):
			t.Errorf("%v; hint: %s; it wrote %q", err, engine.HintOf(err), wrote)
		}
	}
}
