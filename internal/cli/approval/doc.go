// Package approval keeps which plan was approved on this machine, and makes sure that nothing else of what a
// cluster holds is run from it.
package approval
