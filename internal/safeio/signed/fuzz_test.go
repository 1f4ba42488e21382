package signed

import (
	"testing"
	"time"
)

// FuzzSigners: a line of a list of signers names somebody with a key, or is an error.
func FuzzSigners(f *testing.F) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MKoPVcS1OhWSHLG2qKnO"
	for _, line := range []string{"a@b " + key, `"a b" namespaces="theseus,file",valid-after="20260101Z" ` + key,
		"a cert-authority " + key, `"a ` + key, "a", `a namespaces=" ` + key} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if s, err := readSigner(line); err == nil && (s.Principals == "" || s.Key == nil) {
			t.Errorf("%q: %+v", line, s)
		}
	})
}

// FuzzSignatures: a file of signatures never counts for anybody whose key did not sign.
func FuzzSignatures(f *testing.F) {
	for _, text := range []string{"", "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----",
		"-----END SSH SIGNATURE-----"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		who, err := Check([]byte("plan"), map[string][]byte{"plan.sig": data}, nil, time.Unix(0, 0))
		if err == nil || len(who) > 0 {
			t.Errorf("%q is a signature of %q", data, who)
		}
	})
}
