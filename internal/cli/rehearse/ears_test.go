package rehearse

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
)

// TestEars: the logs of ready pods of the workloads that ask are read from now on, each once, and only lines about
// connections count. They are dated by the stamps of the log. A log that ends is read again.
func TestEars(t *testing.T) {
	var lock sync.Mutex
	var read []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		read = append(read, r.URL.Path+" "+r.URL.Query().Get("tailLines")+" "+r.URL.Query().Get("container"))
		n := len(read)
		lock.Unlock()
		if r.URL.Query().Get("timestamps") != "true" {
			t.Error("the lines are not stamped")
		}
		stamp := func(late time.Duration) string { return time.Now().Add(-late).Format(time.RFC3339Nano) }
		fmt.Fprintf(w, "%s level=INFO msg=\"stand-in serves\"\n%s asked 1 true\nasked 1 true\nyesterday asked 1 true\n"+
			"%s asked 1 false\n%[1]s asked 1 maybe\n", stamp(0), stamp(0), stamp(time.Minute))
		w.(http.Flusher).Flush()
		if n > 1 {
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop() // before the server waits for its answers
	typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	e := newEars(&kube.Client{Typed: typed}, &rehearsal.Copy{Traffic: []rehearsal.Pair{{From: "Pod shop/a"}}},
		func(at time.Time, pod types.UID, number int, through bool) {
			lock.Lock()
			defer lock.Unlock()
			if late := time.Since(at); through != (late < 30*time.Second) {
				t.Errorf("%t, %s late", through, late)
			}
			heard = append(heard, fmt.Sprintf("%s %d %t", pod, number, through))
		})
	pod := func(name string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid")},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "other"}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	e.follow(ctx, []corev1.Pod{pod("a", corev1.ConditionFalse), pod("b", corev1.ConditionTrue)})
	e.done.Wait()
	if len(read) > 0 {
		t.Errorf("read %q", read)
	}
	for range 100 { // the first log ends, and the second does not
		e.follow(ctx, []corev1.Pod{pod("a", corev1.ConditionTrue)})
		time.Sleep(5 * time.Millisecond)
		lock.Lock()
		n := len(heard)
		lock.Unlock()
		if n == 4 {
			break
		}
	}
	stop()
	e.done.Wait()
	const log = "/api/v1/namespaces/shop/pods/a/log 0 main"
	if !slices.Equal(heard, []string{"a-uid 1 true", "a-uid 1 false", "a-uid 1 true",
		"a-uid 1 false"}) || !slices.Equal(read, []string{log, log}) {
		t.Errorf("heard %q of %q", heard, read)
	}
}

// TestClock: lines are dated on this machine's clock, also if the node's is another one. One that comes late is dated
// when it was written.
func TestClock(t *testing.T) {
	now := time.Now()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		var c clock
		for i, line := range []struct{ written, read, want time.Duration }{ // seconds
			{0, 2, 2}, {3, 3, 3}, {4, 14, 4}, {5, 14, 5}, {15, 16, 15}} {
			got := c.date(now.Add(line.written*time.Second-ahead), now.Add(line.read*time.Second))
			if !got.Equal(now.Add(line.want * time.Second)) {
				t.Errorf("line %d of a node that is %s behind: %s", i, ahead, got.Sub(now))
			}
		}
	}
}

// TestTalked: connections between stand-ins that were lost or leaked keep a rehearsal from passing, and those that were
// not compared are not covered. A run that did not pass keeps its own reason.
func TestTalked(t *testing.T) {
	pair := rehearsal.Pair{From: "Pod shop/a", To: "Pod shop/b", Service: "shop/b", Port: 80}
	for name, c := range map[string]struct {
		before          bool
		asked           rehearsal.Asked
		passed, covered bool
		why             string
	}{
		"well":       {true, rehearsal.Asked{Pair: pair, Asked: 9}, true, true, "Nothing was lost"},
		"lost a few": {true, rehearsal.Asked{Pair: pair, Asked: 9, Lost: 2}, true, true, "Nothing was lost"},
		"lost in two runs": {true, rehearsal.Asked{Pair: pair, Asked: 9, Lost: 4, LostBack: 2}, true, true,
			"Nothing was lost"},
		"lost":         {true, rehearsal.Asked{Pair: pair, Asked: 9, Lost: 3}, false, true, "3 connections"},
		"leaked":       {true, rehearsal.Asked{Pair: pair, Asked: 9, Leaked: 1}, false, true, "policies deny"},
		"will change":  {true, rehearsal.Asked{Pair: pair, Asked: 9, Changed: 9, Lasting: true}, true, true, "Nothing"},
		"not compared": {true, rehearsal.Asked{Pair: pair, Unlike: "why"}, true, false, "Nothing was lost"},
		"failed": {false, rehearsal.Asked{Pair: pair, Asked: 9, Leaked: 1}, false, true,
			"Nothing was lost"},
	} {
		r := result{Passed: c.before, Why: "Nothing was lost", Traffic: []rehearsal.Asked{c.asked},
			Copy: &rehearsal.Copy{}}
		r.talked(2)
		if r.Passed != c.passed || r.Covered != c.covered || !strings.Contains(r.Why, c.why) {
			t.Errorf("%s: %+v", name, r)
		}
		var text strings.Builder
		if err := r.text(&text); err != nil || !strings.Contains(text.String(), "connections between stand-ins: ") {
			t.Errorf("%s: %v: %s", name, err, text.String())
		}
	}
}
