package step

// Use is what an action does through the API of a cluster, where its operation alone does not say it.
type Use struct {
	Group, Resource string // "*" stands for all
	Namespace       string // empty: in all namespaces, or of cluster-scoped objects
	Verbs           string // separated by spaces
}
