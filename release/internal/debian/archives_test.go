package debian

import "testing"

// TestConfigured: this machine's archives are found, and a file's path becomes an address and a path again.
func TestConfigured(t *testing.T) {
	archives, err := Configured(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"debian/pool/main/n/nftables/nftables_1.0.6-2_amd64.deb",
		"debian-security/pool/updates/main/o/openssl/openssl_3_arm64.deb"} {
		if got := archives.path(archives.at(file)); got != file {
			t.Errorf("%s becomes %s", file, got)
		}
	}
}
