package provider

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

// FuzzLearn: whatever a flag server answers, it is an answer or an error.
func FuzzLearn(f *testing.F) {
	f.Add([]byte(`{"flags":[{"key":"a","value":true,"variant":"on","reason":"STATIC"}]}`))
	f.Add([]byte(`{"flags":[null]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		r := &Remote{}
		for range 2 {
			_, _ = r.learn(answered{status: http.StatusOK, body: body})
		}
	})
}

// FuzzServe: whatever a client asks a server of flags, it is answered, and never with an error of the server's own
// making.
func FuzzServe(f *testing.F) {
	f.Add("a", []byte(`{"context":{"targetingKey":"node-1","n":{"a":[1]}}}`))
	f.Add("", []byte(`{"context":null}`))
	f.Add("a%2Fb", []byte(`[`))
	handler := Handler()
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		request := httptest.NewRequest(http.MethodPost, evaluatePath, bytes.NewReader(body))
		if key != "" {
			request.URL.Path += "/" + key
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code == http.StatusInternalServerError {
			t.Errorf("%q, %q: %d %s", key, body, answer.Code, answer.Body)
		}
	})
}
