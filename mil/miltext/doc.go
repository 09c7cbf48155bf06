// Package miltext converts between ML Programs in memory ([mil.Program]) and
// their text form, the file model.mil of a compiled model.
//
//	program(1.3)
//	[buildInfo = dict<string, string>({{"coremlc-version", "3500.32.1"}})]
//	{
//	    func main<ios18>(tensor<fp16, [1, 2]> x) {
//	            fp16 two = const()[name = string("two"), val = fp16(0x1p+1)];
//	            tensor<fp16, [1, 2]> y = mul(x = x, y = two)[name = string("y")];
//	        } -> (y);
//	}
//
// The text comes in two dialects, which differ in how scalars are written;
// [Parse] takes both, mixed as they come, [Print] gives the bytes that Apple's
// compiler gives for the same program.
//
// As in the other stored forms, values refer to each other by name, and
// constants in a file of weights are references: Parse asks its caller for
// the weight behind one, Print for the reference of a weight. The two forms
// also share what has no place in them: the text knows no documentation
// strings and no attributes of blocks, and its inputs, arguments and
// attributes come in the order of their names.
package miltext
