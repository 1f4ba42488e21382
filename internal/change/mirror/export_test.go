package mirror

// Traffics is the rule of names and clusters alone, which tests break where the comparison with the setup would come
// first.
var Traffics = traffics
