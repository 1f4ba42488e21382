package cloud

import "testing"

// FuzzParseDocument: a policy that was read is read again as the same.
func FuzzParseDocument(f *testing.F) {
	for _, seed := range []string{`{"Statement":[{"Action":"*"}]}`, "%7B%22a%22%3A1%7D", `{"a":1e400}`, "{} {}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDocument(text)
		if err != nil {
			return
		}
		if again, err := ParseDocument(string(d)); err != nil || again != d {
			t.Errorf("%q became %q, and that %q, %v", text, d, again, err)
		}
	})
}

// FuzzReadPlan: a plan for an account is read or refused.
func FuzzReadPlan(f *testing.F) {
	f.Add([]byte("apiVersion: theseus.dev/v1alpha1\nkind: CloudPlan\nactions: [null]\n"))
	f.Add([]byte("actions: [{}]"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = ReadPlan(data) // what it refuses is tested elsewhere
	})
}
