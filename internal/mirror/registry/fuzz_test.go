package registry

import "testing"

// FuzzLogins: a pull secret of any content gives logins or none.
func FuzzLogins(f *testing.F) {
	f.Add("registry.example.org/a:v1",
		[]byte(`{"auths":{"https://registry.example.org":{"auth":"dTpw"},"*.example.org/a":{"username":"u"}}}`))
	f.Add("a", []byte(`{"auths":{"[":null}}`))
	f.Fuzz(func(_ *testing.T, image string, document []byte) {
		Logins(image, [][]byte{document})
	})
}
