// Functions that call the selected kernels. Made from muladd-executorch's template.
#pragma once

${static_dispatch_extra_headers}

${Functions_declarations}
