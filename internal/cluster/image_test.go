package cluster

import "testing"

func TestImageOf(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for text, want := range map[string]Image{
		"nginx":                            {"docker.io/library/nginx", "nginx", ""},
		"calico/node:v3.31.0":              {"docker.io/calico/node", "node", "v3.31.0"},
		"quay.io/calico/node:v3" + digest:  {"quay.io/calico/node", "node", "v3"},
		"registry:5000/calico/node":        {"registry:5000/calico/node", "node", ""},
		"localhost:5000/node:dev":          {"localhost:5000/node", "node", "dev"},
		"[2001:db8::1]:5000/a/b" + digest:  {"[2001:db8::1]:5000/a/b", "b", ""},
		"a:v2@sha256:0":                    {"docker.io/library/a", "a", "v2"},
		"":                                 {},
		"registry/Upper:v1":                {},
		"node:v1:v2":                       {},
		"https://quay.io/calico/node:v3.1": {},
	} {
		if got := ImageOf(text); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
}
