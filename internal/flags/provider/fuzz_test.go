package provider

import (
	"net/http"
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
