// The second half of vineyard's example, unchanged: another process reads the buffer. See vineyard_creator.cu.
//
//   vineyard_reader FOLDER_OR_SOCKET ID
#include <cstdio>
#include <cstring>
#include <string>

#include <vineyard.h>

using namespace vineyard;

#ifdef __CUDACC__
__global__ void printKernel(const uint8_t* data) {
    printf("GPU data is: %s\n", reinterpret_cast<const char*>(data));
}
#endif

static Status show(Client& client, const char* text) {
    ObjectID object_id = ObjectIDFromString(text);
    std::shared_ptr<Buffer> buffer = nullptr;
    RETURN_ON_ERROR(client.GetGPUBuffer(object_id, true, buffer));
    if (buffer->device() != "host") CHECK(!buffer->is_cpu());
    CHECK(!buffer->is_mutable());
#ifdef __CUDACC__
    if (!buffer->is_cpu()) {
        printKernel<<<1, 1>>>(buffer->data());
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    }
#endif
    {
        CUDABufferMirror mirror(*buffer, true);
        printf("CPU data from GPU is: %s\n",
              reinterpret_cast<const char*>(mirror.data()));
    }
    return Status::OK();
}

int main(int argc, char** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: vineyard_reader FOLDER_OR_SOCKET ID\n");
        return 2;
    }
    try {
        Client client;
        VINEYARD_CHECK_OK(client.Connect(argv[1]));
        VINEYARD_CHECK_OK(show(client, argv[2]));
    } catch (const std::exception& error) {
        fprintf(stderr, "vineyard_reader: %s\n", error.what());
        return 1;
    }
    return 0;
}
