package standin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzAllow: whatever is sent as an admission review, the answer is a valid one that allows it, or there is none.
func FuzzAllow(f *testing.F) {
	f.Add(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7"}}`)
	f.Add(`{"kind":"AdmissionReview"}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		if !allow(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))) {
			if w.Body.Len() > 0 {
				t.Errorf("%q is no review, and is answered by %q", body, w.Body)
			}
			return
		}
		var answer struct {
			Response struct{ Allowed bool }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || !answer.Response.Allowed {
			t.Errorf("%q is answered by %q: %v", body, w.Body, err)
		}
	})
}

func FuzzAsks(f *testing.F) {
	f.Add("0=10.96.0.7:80,1=[fd00::7]:443", "asked 0 true")
	f.Add("7=udp/10.96.0.7:53", "asked 7 false")
	f.Add("", "asked 65535 false\n")
	f.Add("0=10.96.0.7:0", "asked 65536 true")
	f.Add("0=[fe80::1%eth0]:80", "asked -1 maybe")
	f.Fuzz(func(t *testing.T, list, line string) {
		all, err := Asks(list)
		for _, one := range all {
			if err != nil || !one.Address.IsValid() || one.Address.Port() == 0 || one.Number < 0 {
				t.Errorf("%q: %+v, %v", list, one, err)
			}
		}
		if n, _, ok := Answer(line); ok && (n < 0 || n > 65535 || !strings.Contains(line, askedWord)) {
			t.Errorf("%q is about %d", line, n)
		}
	})
}
