package outage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// coldAnswers are what a client gets of an API server that was killed, in the order in which it comes back.
var coldAnswers = []func(http.ResponseWriter){
	func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	status(http.StatusServiceUnavailable, "",
		"the request has been made before all known HTTP paths have been installed, please try again later"),
	status(http.StatusInternalServerError, "", "etcdserver: leader changed"),
	status(http.StatusBadGateway, "", "bad gateway"),
	status(http.StatusTooManyRequests, "TooManyRequests", "too many requests"),
	status(http.StatusUnauthorized, "Unauthorized", "Unauthorized"),
	status(http.StatusForbidden, "Forbidden",
		`pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope`),
	status(http.StatusForbidden, "Forbidden", `pods is forbidden: not yet ready to handle request`),
}

func status(code int, reason, message string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
			code, reason, message)
	}
}

// TestRetryUntilWarm: a real client calls a real server that is away, then cold, then warm.
func TestRetryUntilWarm(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := int(calls.Add(1)); n <= len(coldAnswers) {
			coldAnswers[n-1](w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	}))
	server.Config.ErrorLog = nil
	defer server.Close()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	var pods *corev1.PodList
	var heard []string
	limits := Limits{Away: time.Minute, Refused: time.Minute}
	err := Retry(t.Context(), limits, func(err error) { heard = append(heard, err.Error()) },
		func(ctx context.Context) (err error) {
			pods, err = client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		})
	if err != nil || pods == nil || int(calls.Load()) != len(coldAnswers)+1 {
		t.Errorf("after %d calls: %v; it heard %q", calls.Load(), err, heard)
	}
	if len(heard) < len(coldAnswers)-1 { // client-go itself may try one again
		t.Errorf("of %d errors only %d were told: %q", len(coldAnswers), len(heard), heard)
	}
}

// TestRetryEnds: what does not pass is final at once, and what could pass is final when the limit is used up, which it
// says.
func TestRetryEnds(t *testing.T) {
	cold := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x",
		errors.New(`User "ann" cannot get resource "pods"`))
	limits := Limits{Away: time.Minute, Refused: 10 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			errs []error // the last one again and again
			want time.Duration
			says string
		}{
			{[]error{errors.New("broken")}, 0, "broken"},
			{[]error{cold}, limits.Refused, "(tried again for "},
			{[]error{apierrors.NewServiceUnavailable("away")}, limits.Away, "(tried again for "},
			{[]error{context.DeadlineExceeded}, 0, "deadline"}, // of one call
			{[]error{apierrors.NewServiceUnavailable("away"), apierrors.NewServiceUnavailable("away"), cold},
				limits.Refused + time.Second, "(tried again for "},
		} {
			begun, calls := time.Now(), 0
			err := Retry(t.Context(), limits, nil, func(context.Context) error {
				calls++
				return test.errs[min(calls, len(test.errs))-1]
			})
			took := time.Since(begun)
			if last := test.errs[len(test.errs)-1]; !errors.Is(err, last) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v ended as %v", last, err)
			}
			if took > test.want || test.want-took > 2*lastPause {
				t.Errorf("%v: it took %s and not about %s", err, took, test.want)
			}
		}
	})
}

// TestRetryLate: a call that only reads is repeated after a deadline of its own.
func TestRetryLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := Retry(t.Context(), Limits{Away: time.Minute}.Reading(), nil, func(context.Context) error {
			if calls++; calls < 3 {
				return context.DeadlineExceeded
			}
			return nil
		})
		if err != nil || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

// TestSaid: what programs on nodes print when the API server is away or cold, in their own words, and what they print
// otherwise.
func TestSaid(t *testing.T) {
	for text, passes := range map[string]bool{
		`calico: error getting ClusterInformation: connection is unauthorized: clusterinformations.crd.projectcalico.org "default" is forbidden: User "system:serviceaccount:kube-system:calico-cni-plugin" cannot get resource "clusterinformations" in API group "crd.projectcalico.org" at the cluster scope`: true,
		`calico: error getting ClusterInformation: connection is unauthorized: Unauthorized`:                                                                                                   true,
		`calico: error getting ClusterInformation: Get "https://10.96.0.1:443/apis/crd.projectcalico.org/v1/clusterinformations/default": dial tcp 10.96.0.1:443: connect: connection refused`: true,
		`Get "https://10.96.0.1:443/api/v1/pods": EOF`:                                                 true,
		`Get "https://10.96.0.1:443/api/v1/pods": net/http: TLS handshake timeout`:                     true,
		`error: You must be logged in to the server (Unauthorized)`:                                    true,
		`Error from server: etcdserver: leader changed`:                                                true,
		`Error from server (ServiceUnavailable): the server is currently unable to handle the request`: true,
		`pods "a" not found`: false,
		`failed to allocate for range 0: no IP addresses available in range set`:                                         false,
		`pods "a" is forbidden: exceeded quota: small`:                                                                   false,
		`Get "https://10.96.0.1:443/": tls: failed to verify certificate: x509: certificate signed by unknown authority`: false,
		`the plugin calico is not in /opt/cni/bin`:                                                                       false,
		``: false,
	} {
		if Said(text) != passes {
			t.Errorf("%q: passes %t", text, !passes)
		}
	}
}
