package image

import (
	"encoding/base64"
	"testing"
)

// FuzzRewriteSecret: a pull secret of any content is rewritten or left as it is.
func FuzzRewriteSecret(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://registry.example.com/v1/":{"auth":"dTpw"},"registry.example.com/a":{}}}`))
	f.Add([]byte(`{"auths":{"registry.example.com":null}}`))
	r := rules(f, "registry.example.com=new.example.com/x")
	f.Fuzz(func(t *testing.T, config []byte) {
		text := base64.StdEncoding.EncodeToString(config)
		secret := map[string]any{"kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
			"data": map[string]any{".dockerconfigjson": text}}
		changed := r.RewriteSecret(secret)
		if now := secret["data"].(map[string]any)[".dockerconfigjson"]; len(changed) == 0 && now != text {
			t.Errorf("%q became %q, and nothing says so", config, now)
		}
	})
}
