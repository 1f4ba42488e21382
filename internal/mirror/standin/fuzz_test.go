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
